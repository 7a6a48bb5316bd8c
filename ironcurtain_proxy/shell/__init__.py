"""Shell commands: grammar, effects, kinds of operations.

- `parse`, `statements`, `words`: a text becomes a `ParsedCommand`.
- `judging`, `rules`, `secrets`: whether a command only reads.
- `operations`, `branches`: the kind of operation, and the branches it changes.
- `programs`: what is known of each program.
- Also: `beyond`, `effects`, `families`, `family_table`, `family_words`, `find_reader`,
`git_readers`, `options`, `outward`, `places`, `readers`, `reads`, `targets`, `test_reader`.
"""
