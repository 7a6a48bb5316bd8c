"""The servers behind the proxy: start, call, restart, close.

- `servers`, `supervisor`, `starting`: all servers, the life of one, and the settings of all.
- `conversation`: JSON-RPC with one server, what it asks, and how many bytes of answers may be on
  their way. `connection`, `listing`, `roots`: MCP with it, and who is told of it.
- `eras`, `notifications`: how a server of each era is begun, what is said to it, and heard from it.
- `remote`: servers that are reached over HTTP.
- `process`, `guardian`: processes, their files and standard error, and what is left when one is
  killed.
- `gate`: the proxy of a sandbox that reaches nothing.
- `second_instances`: second instances, for what was approved.
- `environment`: what a server can see, and what is masked in what it says.
- `session_log`: what a server says, at a limited rate.
- `load`: what a sandbox uses of the machine, bounded.
"""
