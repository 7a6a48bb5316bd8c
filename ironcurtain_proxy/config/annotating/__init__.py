"""Annotations of a server's tools, read from its `tools/list`.

A server's texts may be wrong, so the result is a proposal. A tool that the texts leave in doubt
is `unknown`: every preset asks about it or denies it.

- `annotate`: the tools of a server, each with the roles of its arguments and its kind; those that
  the shipped annotations describe are recognised by name and schema.
- `described`: a server with a proposal for each tool, and its entry in the annotation file.
- `propose`: proposals for a tool, an argument, and a member of an object.
- `texts`: what names and descriptions indicate, tools that run commands, and `words.toml`.
"""
