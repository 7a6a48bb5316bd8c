"""Annotations of a server's tools, read from its `tools/list`.

A server's texts may be wrong, so the result is a proposal. A tool that the texts leave in doubt
is `unknown`: every preset asks about it or denies it.

- `annotate`: the tools of a server, each with the roles of its arguments and its kind.
- `described`: a server with a proposal for each tool, and its entry in the annotation file.
- `known`: tools that the shipped annotations describe, recognised by name and schema.
- `propose`, `texts`, `proposal`: proposals for a tool, an argument, a member of an object, and a
  tool as annotated from its list.
- `words`, `words.toml`: the words that indicate arguments and effects.
- `shell_tools`: tools that run commands, and the types of a schema.
"""
