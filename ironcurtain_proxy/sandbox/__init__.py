"""The confinement of a server process.

- `profile`, `launch`, `inside`: what a server may touch and use, and its start in a sandbox.
- `relay`: services of the machine on the loopback of a sandbox.
- `closure`, `closed_network`: the same restrictions for one command without a network, by
  bubblewrap alone.
- `shell_setup`: what our own shell is handed, and says beside its answers.
- `installed`: the installed program in place of what fetches it.
- `probe`: whether this machine can confine a server.
- `wanted`: what a server was refused, from its own words.
- `closing`: the program that covers a file in sandboxes that run already.
- `settled_names`: the hidden names of a project that a person has approved.
- `private_tmp`: a `/tmp` and folders of a server's own.
- `second_instance`: the sandbox of a second instance, for what was approved.
- `restrictions`: what a running process of a sandbox can touch.
- `denials`: what a sandbox refuses, before and after the call.
- `directory`: directories for sockets, the settings in them, and what a killed proxy left.
- `pools`: what Python imports first in a sandbox.
- `standstill`: all processes of a sandbox, stopped between calls.
- `lookout`, `watchman`, `survey`, `putting_back`: what a call left at control places is
  found, judged and put back.
"""
