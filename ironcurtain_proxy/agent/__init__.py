"""The agent's side: the MCP server that the agent talks to, and the texts of replies.

- `server`: the methods that are served. `era`: how a client begins, and the marks of answers, in
  both eras of the protocol.
- `transport`, `messages`: the connection, and the messages read from it.
- `requests`, `capacity`: requests in progress, the tasks that answer them, and the
  limit on their bytes.
- `rounds`: calls that go on between two requests, with questions. `sealing`: what clients carry
  from one to the next, and calls that outlive their proxy. `subscriptions`: what clients
  listen to.
- `introductions`: servers' instructions, quoted under their names.
- `own_tools`, `guidance`: the proxy's own tools, and the instructions on approvals.
- `asking`: servers' questions, sent to the client.
- `operations`: requests besides tool calls.
- `replies`: the texts of replies.
- `elicitation`: questions to a reviewer through the agent's client.
"""
