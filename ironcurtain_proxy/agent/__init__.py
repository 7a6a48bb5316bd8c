"""The agent's side: the MCP server it talks to, and the words of our replies."""
