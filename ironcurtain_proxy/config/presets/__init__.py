"""Presets: what a policy and a configuration say, as data, and joined with a person's servers.

`shipped` has one file for each preset. A rule in it says for which tools it is written (`about`);
`@secrets` stands for the names of files that the shipped policy takes for secret.

- `preset`: the files of the presets.
- `writing`: the files of a set-up, none of the operator's lost.
- `compose`: a preset and the tools of the servers become policy, annotations and configuration.
"""
