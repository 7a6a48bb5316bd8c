"""The policy: rules, annotations and lists. The files of the package are in `shipped`.

- `policy_files`, `policy_loading`: which files are read, and how they are joined.
- `layer_reading`: the rules of every layer. `managed`: the administrator's layer. `bundled`: the
  fleet's bundle in it.
- `reviewers_file`: the persons whose signatures approve.
- `policy_file`: rules and the lists that they name. `short_form`, `annotations_file`,
  `engine_file`: one format each.
- `proposing`: the rule that would make the question about a call unnecessary.
- `protection`: files that no rule makes accessible.
- `editing`: adding a rule to the text of a file.
- `difference`: the difference of two policies.
- `lint`, `lint_annotations`, `lint_subjects`: rules and annotations without effect.
"""
