"""The review of open questions on a terminal.

- `review_screen`: the live screen. `plain_review`: line by line, for scripts.
- `waiting_list`: the calls that wait, the search in them, and one in full.
- `text_screen`: lines that scroll, and the names of keys.
- `history_screen`: past calls; the rule, the explanation and the keys, in place of a call.
- `screen_sources`: the sources of rules, explanations and past calls.
"""
