"""Open questions, and the channels to reviewers.

- `open_questions`: each question asked once, however often the call is made again; a notice that a
  call waits.
- `terminal`: who is asked in which order, and two of the channels: terminal and function.
"""
