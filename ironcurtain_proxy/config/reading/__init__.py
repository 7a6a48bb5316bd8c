"""Documents of the operator, read strictly.

- `reading`, `yaml_reading`: JSON and YAML files. `document`: a value that knows its place.
- `problems`: messages about what is wrong. `layers`, `environment`: which source wins.
- `operator_paths`: paths as the operator writes them.
- `suggestions`: the known word that a misspelt one stands for.
"""
