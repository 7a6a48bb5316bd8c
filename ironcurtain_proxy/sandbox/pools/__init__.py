"""A directory of `PYTHONPATH` inside of a sandbox.

- `sitecustomize`: what Python imports first there.
"""
