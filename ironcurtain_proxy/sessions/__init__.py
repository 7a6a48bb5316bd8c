"""The directories of running and ended sessions.

- `directories`: who holds one, and how long those of ended sessions stay.
- `running`: what each running session uses, by which settings, and who asks.
"""
