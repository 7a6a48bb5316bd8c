"""The other side of the mailbox: what a session, or a person at a terminal, uses."""
