"""The directories of running and ended sessions.

- `directories`: who holds one, and how long those of ended sessions stay.
- `running`: what each running session uses, for `status`.
- `asker`: who asks, for a reviewer. `configuration`: by which settings.
"""
