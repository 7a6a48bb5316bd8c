"""The engine's decision: approve, approve with safeguards, or send to a reviewer. Pure.

- `evaluation`: the whole evaluation, its result, and unanswered questions.
- `interaction`, `extraction`: what a call does, and where; what was learned.
- `risk`: the rules of safety and the figures, and how many calls may be held.
- `settings`: the section `auto_confirm` as values, and the matrix.
"""
