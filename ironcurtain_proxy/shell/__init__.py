"""Shell commands: grammar, effects, kinds of operations.

- `statements`, `words`: a text becomes a `ParsedCommand`. `literal_text`: here-documents, which the
  grammar does not read, and variables whose values stand in the text.
- `effects`: what a command can do, the worst of its parts.
- `grammar`, `programs`: the options of programs, by the table `programs.toml`; what only reads.
  `readers`: find, tests and git among them.
- `outward`: what leaves the sandbox, and where to. `places`: what lies where, and what names a
  secret.
- `elsewhere`: what may read files of the user's outside the workspace.
- `wrappers`: programs that run others.
- `launchers`: programs that fetch what they run, as commands of servers.
- `operations`: what a profile and the engine ask of a command.
- `families`, `family_table`, `kinds`, `reading`: what an approval of a command may cover, also of
  the developer's own services and of files elsewhere.
- `quiet`: local parts that need no approval beside one that reaches out, what one part may change
  of the others, and the files that a command runs.
- `in_words`: what a command does, in sentences for the person who is asked.
"""
