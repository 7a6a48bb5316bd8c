"""JSON-RPC lines over pipes, for both ends of the proxy. Knows no method and no policy.

- `codec`: a line into an object, and back. `pipes`, `channels`: lines in and out of pipes.
- `answers`: requests that wait for their answer. `batch`: what one read brings, done in one go.
"""
