"""The reviewer's page in a browser: questions, answers, the record, the day.

- `app`: the socket and the running server, the addresses of the page and of its data: questions,
  calls of the audit log, the day.
- `guard`: tickets and keys, checks of every request, and headers of every answer.
- `static`: the page itself: markup, style and script, with no resource from elsewhere.
"""
