"""Someone is asked: how reviewers are reached, and what counts as an answer."""
