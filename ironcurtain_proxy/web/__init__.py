"""The reviewer's page in a browser: questions, answers, the record, the day.

- `app`: the addresses of the page and of its data. `server`: the socket and the running server.
- `access`: who may use the page. `guard`: what every request and every answer of it must have.
- `questions`: what waits, as the page shows it. `record`: calls of the audit log.
- `static`: the page itself: markup, style and script, with no resource from elsewhere.
"""
