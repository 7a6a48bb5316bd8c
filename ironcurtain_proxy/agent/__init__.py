"""The agent's side: the MCP server that it talks to, and the words of its replies.

- `server`, `transport`, `calls`: the MCP server, its wire, and the fast lane for tool calls.
- `own_tools`, `guidance`: the proxy's own tools, and what the agent is told of approvals.
- `replies`: replies in words for the agent.
- `elicitation`: a reviewer who is reached through the agent's client.
- Also: `capacity`.
"""
