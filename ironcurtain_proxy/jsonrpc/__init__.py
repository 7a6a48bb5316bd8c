"""JSON-RPC lines over pipes, for both ends of the proxy. Knows no method and no policy.

- `codec`: a line into an object, and back. `pipes`, `line_writer`, `channels`: lines in and out of
  pipes.
- `answers`: requests that wait for their answer. `batch`: what one read brings, done in one go.
- `wire`: what a conversation needs of its wire, whatever carries it.
"""
