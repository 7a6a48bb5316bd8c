"""The confinement of a server process.

- `profile`, `settings`, `launch`, `inside`: what a server may touch, and its start in a sandbox.
- `launchers`, `installed`, `replaced_launchers`: the installed program in place of what fetches it.
- `probe`, `probe_cache`: whether this machine can confine a server.
- `reach`, `denials`, `error_hints`: what a sandbox refuses, before and after the call.
- `directory`, `abandoned`: directories for sockets, and what a killed proxy left.
- `steering`, `lookout`, `watchman`, `putting_back`, `inotify`: files that steer what runs outside.
- Also: `calls`, `git_settings`, `wrapper`.
"""
