"""The facts of an untrusted call, or the reason why it has none.

- `resolver`: the way of a call through the other modules.
- `catalogue`, `live_catalogue`, `schema`, `schema_reading`, `schema_cost`: tools and their schemas.
- `arguments`, `facts`, `paths`, `spelling`, `mounts`, `urls`: paths and URLs in arguments.
- `deep`, `unknown_tools`: members of objects, and texts that are read by their form.
- `operations`, `server_questions`, `naming`: operations other than tool calls, and the
  agent's names of prompts and resources.
- `git`, `git_process`, `git_credentials`, `remotes`, `repositories`, `branches`: repositories and
  their remotes.
- `commands`: the shell command of a call, and where it runs.
- `meanings`, `entries`, `pushes`: the files and remotes that give a command its meaning.
- `client_tools`: clients' own tools as calls of servers.
- `hosts`: the hosts that a command is known to reach.
- `context`, `fingerprint`, `grant_facts`: facts of a session, and of a call as a whole.
"""
