"""What the operator writes, read and checked.

A file with anything unknown in it is refused, with its JSON path and the nearest right word: an
ignored condition would make an allow rule match everything.

- `annotating`: what tools take and do, from `tools/list`. `presets`: what `init` writes.
- `settings`: everything that `serve` is told. One module for each section: `capability_settings`,
  `interceptor_settings`, `overlay_settings`, `review_settings`, `timeline_settings`.
- `reading`: files into checked values. `policy`: rules, annotations, lists.
- `servers`: which servers run, and where. `migration`: files of older versions.
- `auto_confirm`: the section of the engine. `extras`: libraries that are not always installed.
"""
