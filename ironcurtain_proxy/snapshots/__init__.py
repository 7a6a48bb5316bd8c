"""The workspace as it was before a call, and the way back.

What a call is, is not known here.

- `timeline`: points in time of a whole workspace, one before each call that may change it.
- `faults`: errors.
"""
