"""Access to language models. Imported only by folders that are off by default.

- `litellm_model`: a model; the one module that knows litellm. `http`: bounded HTTP.
- `log`: what was asked and answered.
"""
