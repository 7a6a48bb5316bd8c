"""The engine's decision: approve, approve with safeguards, or send to a reviewer. Pure.

- `evaluation`, `decision`: the whole evaluation, its result, and unanswered questions.
- `interaction`, `extraction`, `operations`: what a call does, and where.
- `matrix`, `safety_rules`, `patterns`: the rules, who reviews, and what was learned.
- `risk`, `history`: the figures, and how many calls may be held.
- `settings`: the section `auto_confirm` as values.
"""
