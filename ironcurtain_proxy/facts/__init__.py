"""An untrusted tool call becomes facts, or a reason why it cannot.

- `resolver`: the way of a call through the others.
- `catalogue`, `live_catalogue`, `schema`, `schema_cost`: tools and their schemas.
- `arguments`, `facts`, `paths`, `spelling`, `mounts`, `urls`: what arguments name.
- `deep`: members of objects, and texts that are read by what they look like.
- `operations`, `server_questions`, `naming`: what operations other than tool calls name, and the
  agent's names of prompts and resources.
- `git`, `git_process`, `remotes`, `repositories`, `branches`: what repositories add.
- `commands`: the shell command of a call, and where it runs.
- `meanings`, `entries`, `pushes`: what files and remotes a command takes its meaning from.
- `hosts`: the hosts that it is known to reach.
- `context`, `fingerprint`, `grant_facts`: what is known of a session, and of a call as a whole.
"""
