"""Questions of many machines in one PostgreSQL database, and their page. Off unless started.

- `database`: the tables: questions, answers that wait for their machines, logins to the page.
- `board`: the open questions as a person reads and answers them.
- `desk`: the page, one copy of many. `login`: who may see it.
- `relay`: a machine's end: sends the questions of its mailboxes, and brings signed answers back.
"""
