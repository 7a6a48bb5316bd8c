"""Questions of many machines in one PostgreSQL database, and their page. Off unless started.

- `database`: the tables: questions, answers that wait for their machines, logins to the page.
- `desk`: the page, one copy of many.
- `logins`: logins to the page by OpenID Connect, and which machines' questions each sees.
- `relay`: a machine's end: sends the questions of its mailboxes, and brings signed answers back.
"""
