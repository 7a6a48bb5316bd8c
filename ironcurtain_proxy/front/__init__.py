"""The front over HTTP: agents that come by streamable HTTP, each session a process of its own.

- `serving`: the front from its start to its end. `settings`: where it listens, and for whom.
- `listening`: sockets, and the file that names the port. `principals`: tokens, and whose they are.
- `connections`: one connection, and the head of each request. `guard`: what every request must
  have, and how one is refused. `app`: the address, its methods and bodies. `messages`: what was
  posted, and its answer. `modern`: requests without a session.
  `events`: a stream as the client reads it.
- `sessions`: all sessions. `session`: one, and which stream a message belongs to. `stream`:
  messages in order, kept for a client whose connection broke. `process`: the proxy of a session.
"""
