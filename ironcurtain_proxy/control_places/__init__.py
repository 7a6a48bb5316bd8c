"""Control places: paths of a workspace through which a file makes the host run something.

A contained call may change data. It may not leave, unseen, what the user's git, editor, shell or
agent acts on by itself. Which is which is a closed rule: inside a repository of git everything
that is not listed as data is a control place; elsewhere a new hidden name is one unless it is
listed as harmless.

- `rules`: what kind of control place a path is, if it is one
- `git_files`: the repositories that an index makes git look into, and whether a changed
  configuration of git, a waiting rebase or a cherry-pick is harmless
- `words`: the words of such texts, and what a value names or a shell evaluates
- `commands`: what the texts of settings and hooks name
- `leads`: the paths of a workspace that settings, hooks and links lead to
- `outside`: the user's settings in the home directory, above a workspace, and of the system
- `links`: settings that are judged by content, and links by where they lead
- `python_modules`: the files that Python would take first for a module that settings start

The names stand in `names.toml`. `rules`, `git_files`, `words` and `commands` touch no
file: callers pass what they found.
"""
