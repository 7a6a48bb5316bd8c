"""The one way to a language model. Imported only by what is off by default.

- `litellm_model`: a model; the one module that knows litellm. `http`: bounded HTTP.
- `log`: what was asked and answered.
"""
