"""Notices about reviews and approvals.

- `notifier`: decides when a notice goes out, and sends it. `notices`: its text.
"""
