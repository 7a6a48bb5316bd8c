"""The front over HTTP: agents that come by streamable HTTP, each session a process of its own.

- `serving`: the front from its start to its end. `settings`: where it listens, for whom, and whose
  a token is.
- `connections`: one connection, and the head of each request. `guard`: sockets, what every request
  must have, and how one is refused. `app`: the address, its methods and bodies, what was posted,
  and its answer. `modern`: requests without a session.
- `sessions`: all sessions; each has a process, and knows which stream a message belongs to.
  `stream`: messages in order, kept for a client whose connection broke, as the client reads them.
"""
