"""The section `auto_confirm`.

- `settings`: the section, and where notifications go.
- `reviewer_settings`: the reviewers, and the key and the address of a model that reviews.
"""
