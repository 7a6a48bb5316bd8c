"""The policy answers (PDP). Pure: no I/O, no clock, no log."""
