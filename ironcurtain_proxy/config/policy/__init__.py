"""The policy: rules, annotations and lists. The files of the package are in `shipped`.

- `policy_files`, `policy_loading`: which files are read, and how they are joined. -
`policy_file`, `annotations_file`, `lists_file`, `engine_file`: one format each. - `protection`:
files that no rule makes accessible. - `lint`, `lint_annotations`, `lint_subjects`: rules and
annotations without effect.
"""
