"""Access to language models. Imported only by folders that are off by default.

- `litellm_model`: a model, and the log of what was asked and answered; the one module that knows
  litellm. `http`: bounded HTTP.
"""
