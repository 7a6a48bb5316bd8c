"""Strict reading of the operator's files.

- `reading`, `yaml_reading`: JSON and YAML files. `document`: a value with its place.
- `forms`, `mistakes`: one declaration for each file, read fast, and slowly where it is wrong.
- `declared`: settings with their key, reader and default.
- `problems`: messages about mistakes. `layers`, `environment`: which source wins.
- `operator_paths`: paths as the operator writes them.
- `suggestions`: the known word nearest to a misspelt one.
"""
