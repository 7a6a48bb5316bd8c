"""The operator's configuration, read and validated.

A file with an unknown key or word is refused, with its JSON path and the nearest known word: an
ignored condition would make an allow rule match everything.

- `settings`: all settings of `serve`. `overlay_settings`: its larger parts.
- `auto_confirm`: the engine's section.
- `reading`: files into validated values. `policy`: rules, annotations, lists.
- `servers`: which servers run, and where. `migration`: files of older versions.
- `annotating`: annotations made from `tools/list`. `clients`: files of MCP clients.
- `presets`: what `init` writes.
- `schemas`: JSON Schemas of the files, for editors.
- `extras`: libraries that are not always installed.
"""
