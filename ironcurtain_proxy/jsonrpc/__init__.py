"""JSON-RPC lines over pipes, for both ends of the proxy.

- `codec`: lines decoded and encoded, and what of a message stands in HTTP headers. `pipes`: lines
  out of pipes, and the interface between a conversation and its connection.
- `sending`: lines into pipes, the lines of one read handled together, requests that wait for their
  answer, and digests of long results.
"""
