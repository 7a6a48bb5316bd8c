"""The review of open questions on a terminal.

- `review_screen`: the live screen. `plain_review`: line by line, for scripts.
- `rules`, `rule_screen`: the rule that is offered for a call.
- `review_detail`, `changes`: one request in full, and the change it would make to a file.
"""
