"""Copies of what a call may change, taken before it, and the way back.

Paths are given; what a call is, is not known here. Nothing that is read is trusted: links are not
followed, and nothing that a repository configures is run.

- `snapshot`, `contents`, `manifest`, `storage`: a snapshot, and where it lies.
- `rollback`, `planning`, `applying`: the way back.
- `repository`, `own_repository`, `git_commands`: repositories.
- `watch`: what a call changed besides. `under_way`, `retention`: which snapshots stay.
- `timeline`: points in time of a whole workspace, one before each call.
- `tree`, `walking`, `places`, `faults`: file trees, safely opened places, errors.
"""
