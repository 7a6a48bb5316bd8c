"""The facts of an untrusted call, or the reason why it has none.

- `resolver`: the way of a call through the other modules.
- `live_catalogue`: tools, their digests, and the agent's names of prompts and resources. `schema`,
  `schema_reading`: their schemas.
- `arguments`, `facts`, `paths`: paths and URLs in arguments, members of objects, and texts that are
  read by their form.
- `operations`: operations other than tool calls, and a server's questions.
- `git`, `git_process`, `pushes`, `repositories`: repositories, their branches and remotes, and
  where a command reaches, and what a push would publish.
- `commands`: the shell command of a call, and where it runs. `sql`: the effect of statements.
- `meanings`, `entries`: the files and hosts that give a command its meaning.
- `client_tools`: clients' own tools as calls of servers.
"""
