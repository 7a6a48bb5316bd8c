"""JSON-RPC lines over pipes, for both ends of the proxy. Knows no method and no policy."""
