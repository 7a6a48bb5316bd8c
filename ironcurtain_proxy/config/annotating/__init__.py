"""What a server's tools take and do, read from its `tools/list`.

A server's words are a proposal: they may be wrong, and where they leave a doubt the tool is
`unknown`, which every preset asks about or denies.

- `annotate`: the tools of a server, each with the roles of its arguments and its kind.
- `described`, `written`: a server with a proposal for each tool, and its place in the file.
- `known`: tools that the shipped annotations describe, recognised by name and schema.
- `propose`, `texts`, `proposal`: what is proposed for a tool, an argument, a member of an object.
- `argument_roles`, `words`: roles of single arguments, and the words that tell them.
- `shell_tools`: tools that run commands.
- `read_tool`: what is known of one tool.
"""
