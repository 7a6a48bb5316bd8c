"""The auto-confirm engine: what was escalated is approved, or routed to a reviewer. Pure.

No I/O, no clock, no log. Off unless switched on, and it has no word for a denial.
"""
