"""The policy: rules, annotations and lists. The files that come with the package are in `shipped`.

- `policy_files`, `policy_loading`: which files are read, and what they are joined into.
- `policy_file`, `annotations_file`, `lists_file`, `engine_file`: one format each.
- `protection`: what no rule can open.
- `lint`, `lint_annotations`, `lint_subjects`: rules and annotations that say nothing.
"""
