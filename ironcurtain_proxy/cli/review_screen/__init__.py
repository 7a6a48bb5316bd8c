"""The review of open questions on a terminal.

- `review_screen`: the live screen. `plain_review`: line by line, for scripts; the sources of rules,
  explanations and past calls.
- `waiting_list`: the calls that wait, the search in them, one in full, and lines that scroll.
- `history_screen`: past calls; the rule, the explanation and the keys, in place of a call.
"""
