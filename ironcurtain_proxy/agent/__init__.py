"""The agent's side: the MCP server that it talks to, and the words of its replies.

- `server`: the methods that are served. `handshake`: versions, and the answer to `initialize`.
- `transport`, `messages`: the wire, and a line of it into a message.
- `requests`, `lanes`, `capacity`: requests under way, the tasks that answer them, and how many
  bytes of them may be.
- `introductions`: what servers say of their use, under their names.
- `own_tools`, `guidance`: the proxy's own tools, and what the agent is told of approvals.
- `asking`: servers' questions, put to the client.
- `operations`: requests besides tool calls.
- `replies`: replies in words for the agent.
- `elicitation`: a reviewer who is reached through the agent's client.
"""
