"""The engine's decision: approve, approve with safeguards, or send to a reviewer. Pure.

- `evaluation`, `decision`: the whole evaluation, and its result.
- `interaction`, `extraction`, `operations`, `places`, `branches`: what a call does, and where.
- `matrix`, `safety_rules`, `path_patterns`, `patterns`: the rules.
- `risk`, `confidence`, `context_score`, `history`: the figures.
- `routing`, `sessions`, `lifecycle`, `final_table`: who reviews, and what becomes of a question.
- `settings`: the section `auto_confirm` as values.
"""
