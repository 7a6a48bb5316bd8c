"""The section `auto_confirm`.

- `settings`: the section. `reviewer_settings`, `notification_settings`: its parts.
  `model_access`: the key and the address of a model that reviews.
"""
