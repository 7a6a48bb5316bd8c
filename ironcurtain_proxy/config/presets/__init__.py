"""Presets: policy and configuration templates, combined with a person's servers.

`shipped` has one file for each preset. A rule in it names the kinds of tools it applies to
(`about`); `@secrets` stands for the file names that the shipped policy treats as secret.

- `preset`: the files of the presets, and their rules that hold for every set of servers; a preset
  and the tools of the servers become policy, annotations and configuration; the files of a set-up
  are written, with none of the operator's lost.
"""
