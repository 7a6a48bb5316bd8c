"""The proxy's own process: clocks, memory, operator log.

- `clocks`: its time and its ids. `memory`: how the allocator treats large messages.
- `operator_log`: what its operator reads while it runs. `unattended`: what the people behind a
  session are told where nobody reviews.
"""
