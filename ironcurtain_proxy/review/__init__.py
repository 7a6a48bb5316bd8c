"""Open questions, and the channels to reviewers.

- `open_questions`: each question asked once, however often the call is made again.
- `channel_order`: who is asked, in which order.
- `notices`: a notice that a call waits.
- `terminal`, `callback`: two of the channels.
"""
