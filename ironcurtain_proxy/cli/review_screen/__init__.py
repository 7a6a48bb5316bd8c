"""The review of open questions on a terminal.

- `review_screen`: the live screen. `plain_review`: line by line, for scripts.
- `waiting_list`: the calls that wait, and the search in them. `review_detail`: one in full.
- `sending`: an answer on its way. `key_names`: the keys.
- `asides`: the rule, the explanation and the keys, shown in place of a call. `text_screen`: lines.
- `history_screen`: past calls. `surroundings`: where rules, explanations and past calls come from.
"""
