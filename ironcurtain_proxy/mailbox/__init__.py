"""Questions and answers as files in a directory: the proxy's end and the other end.

- `reviewer`, `question`, `watch`, `leftovers`, `grants_command`: the proxy's end.
- `requests`, `answering`, `sending`, `mailboxes`, `display`, `changes`: the end of a session, a
  script or a person.
- `messages`, `credential`, `token_file`: the files, and whose answer one is.
- `listener_lock`, `processes`: who listens, and whether a proxy is alive.
- `user_message`: the user's last message, as a session leaves it.
"""
