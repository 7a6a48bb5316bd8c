"""The one place where rooms are joined."""
