"""The review of open questions on a terminal.

- `review_screen`: the live screen. `plain_review`: line by line, for scripts.
- `waiting_list`: the calls that wait, and the search in them. `review_detail`: one in full.
- `key_names`: the keys.
- `call_screens`: the rule, the explanation and the keys, in place of a call.
- `text_screen`: lines that scroll.
- `history_screen`: past calls. `screen_sources`: the sources of rules, explanations and past calls.
"""
