"""Notices about reviews and approvals.

- `notifier`: decides when a notice goes out. `notices`: its text. `channels`: its transports.
"""
