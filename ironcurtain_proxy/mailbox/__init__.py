"""Questions and answers as files in a directory: the proxy's end and the other end.

- `reviewer`: the proxy's end.
- `mailboxes`: open requests, and whether their proxy is alive; `answering`, `display`: the end of a
  session, a script or a person.
- `messages`: the files, and whose answer one is.
- `adoption`: questions whose proxy is gone, and what else it left.
- `session_state`: the user's last message, as a session leaves it; the remembered grants, and an
  operator's commands about them.
"""
