"""JSON-RPC lines over pipes, for both ends of the proxy.

- `codec`: lines decoded and encoded. `pipes`, `line_writer`, `channels`: lines in and out of
  pipes.
- `guessed_digests`: digests of long results, beside their reading.
- `answers`: requests that wait for their answer. `batch`: the lines of one read, handled together.
- `headers`: what of a message stands in HTTP headers, too.
- `wire`: the interface between a conversation and its connection.
"""
