"""The servers behind the proxy: start, call, restart, close.

- `servers`, `supervisor`, `starting`, `options`: all servers, and the life of one.
- `conversation`: JSON-RPC with one server. `connection`: MCP with it.
- `greeting`, `listing`, `roots`, `open_questions`, `listeners`, `wire_params`, `progress_tokens`:
  parts of that, and who is told of it.
- `modern`, `subscriptions`: what is said to servers without a handshake, and heard from them.
- `task_calls`: tools that run as tasks of the protocol alone.
- `remote`: servers that are reached over HTTP. `resending`: a call whose session they forgot.
- `process`, `guardian`, `orphans`: processes, and what is left when one is killed.
- `gate`: the proxy of a sandbox that reaches nothing.
- `twins`: second instances, for what was approved.
- `standing`: when the processes of a server stand still, and when they go on.
- `probing`: what the process of a server can touch.
- `environment`, `working_directory`, `hardening`: what a server can see.
- `stderr`, `session_log`, `allowance`, `left_out`, `masking`, `unusable_messages`: what a server
  says.
- `versions`: the protocol versions that servers are spoken to in.
- `load`: what a sandbox uses of the machine, bounded.
- `descriptors`, `answer_capacity`: how many files may be open, and how many bytes of answers
  may be on their way.
"""
