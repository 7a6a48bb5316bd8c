"""The directories of sessions, running and ended.

- `directories`: who holds one, and how long those of ended sessions stay.
- `running`: what each running session uses, for `status`.
"""
