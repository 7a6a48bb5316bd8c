"""What becomes of an escalation. Pure: no I/O, no clock, no log."""
