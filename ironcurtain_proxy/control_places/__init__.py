"""Control places: paths of a workspace through which a file makes the host run something.

A contained call may change data. It may not leave, unseen, what the user's git, editor, shell or
agent acts on by itself. Which is which is a closed rule: inside a repository of git everything
that is not listed as data is a control place; elsewhere a new hidden name is one unless it is
listed as harmless.

- `rules`: what kind of control place a path is, if it is one
- `git_files`: the repositories that an index makes git look into, and whether a changed
  configuration of git, a waiting rebase or a cherry-pick is harmless
- `links`: where git's settings, commands and links of control places lead
- `python_modules`: the files that Python would take first for a module that settings start

The names stand in `names.toml`. All modules but the last two are pure: callers list files and pass
what they found.
"""
