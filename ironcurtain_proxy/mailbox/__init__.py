"""The other side of the mailbox: what a session, a script or a person uses."""
