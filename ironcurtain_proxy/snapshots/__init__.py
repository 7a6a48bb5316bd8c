"""The states of a workspace before calls, and the rollback to them.

- `timeline`: points in time of a whole workspace, one before each call that may change it.
- `faults`: errors.
"""
