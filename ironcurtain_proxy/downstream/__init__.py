"""The servers behind the proxy: start, call, restart, close. Knows no policy, and no agent."""
