"""The agent's side: the MCP server that the agent talks to, and the texts of replies.

- `server`: the methods that are served.
- `transport`: the connection. `requests`: the messages read from it, the tasks that answer them,
  and the limit on their bytes.
- `rounds`: calls that go on between two requests, with questions. `sealing`: what clients carry
  meanwhile.
- `operations`: requests besides tool calls, and what clients listen to.
- `asking`: servers' questions and questions to a reviewer, sent to the client; the instructions
  that it gets when it connects.
- `replies`: the texts of replies, the proxy's own tools, how a client begins, and the marks of
  answers in both eras of the protocol.
"""
