"""The section `auto_confirm`.

- `settings`: the section. `notification_settings`: where notifications go.
- `reviewer_settings`: the reviewers, and the key and the address of a model that reviews.
"""
