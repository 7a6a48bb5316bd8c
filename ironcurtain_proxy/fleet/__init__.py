"""Questions of many machines in one PostgreSQL database, and their page. Off unless started.

- `database`: the tables: questions, answers that wait for their machines, logins to the page.
- `desk`: the page, one copy of many: the open questions, and who may see them.
- `relay`: a machine's end: sends the questions of its mailboxes, and brings signed answers back.
"""
