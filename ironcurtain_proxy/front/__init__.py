"""The front over HTTP: agents that come by streamable HTTP, each session a process of its own.

- `serving`: the front from its start to its end, its address, methods and bodies.
- `connections`: one connection, the head of each request, and streams of messages in order, kept
  for a client whose connection broke. `guard`: where the front listens, for whom, what every
  request must have, and how one is refused. `modern`: requests without a session.
- `sessions`: all sessions; each has a process, and knows which stream a message belongs to.
"""
