"""Strict reading of the operator's files.

- `reading`, `yaml_reading`: JSON and YAML files. `document`: a value with its place; messages about
  mistakes, with the nearest known word.
- `forms`: one declaration for each file and setting, read fast, and slowly where it is wrong.
- `layers`: which source wins, the environment, and paths as the operator writes them.
"""
