"""Shell commands: grammar, effects, kinds of operations.

- `parse`, `statements`, `words`, `constants`: a text becomes a `ParsedCommand`.
- `effects`: what a command can do, the worst of its parts.
- `grammar`, `programs`: the options of programs, by the table `programs.toml`.
- `reads`, `readers`, `git_readers`: what only reads.
- `outward`, `beyond`, `places`, `secrets`, `targets`: what leaves the sandbox, and where to.
- `wrappers`: programs that run others.
- `launchers`, `launched_packages`: programs that fetch what they run, as commands of servers.
- `capabilities`, `operations`, `branches`: what a profile and the engine ask of a command.
- `families`, `family_options`, `family_table`, `family_words`, `kinds`, `local_services`: what an
  approval of a command may cover.
- `scripts`: the files that a command runs.
- `quiet`: local parts that need no approval beside one that reaches out.
- `in_words`: what a command does, in sentences for the person who is asked.
- `disturbances`: what one part of a command may change of the others.
"""
