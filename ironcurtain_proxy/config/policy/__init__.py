"""The policy: rules, annotations and lists. The files of the package are in `shipped`.

- `policy_files`, `policy_loading`: the layers of rules, which files are read, how they are joined,
  and the files that no rule makes accessible.
- `managed`: the administrator's layer, with the signed bundle of a fleet.
- `policy_file`: rules and the lists that they name, and the difference of two policies.
- `short_form`, `annotations_file`, `engine_file`: one format each. `reviewers_file`: the persons
  whose signatures approve.
- `proposing`: the rule that would make the question about a call unnecessary, and adding it to a
  file.
- `lint`: rules and annotations without effect.
"""
