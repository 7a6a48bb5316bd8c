"""The kinds of reviewers that the engine can ask.

- `process`: a process, and its starts.
- `json_lines`: the two protocols of such a process, and the queue of its questions.
- `model`: a language model. `reviewer_chain` has the third kind: another session with a mailbox.
"""
