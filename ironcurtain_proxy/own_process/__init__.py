"""The proxy's own process: clocks, memory, operator log.

- `clocks`: its time and its ids.
- `operator_log`: what its operator reads while it runs, and what the people behind a session are
  told where nobody reviews; how the allocator treats large messages.
"""
