"""What can go wrong with a safeguard."""

from ironcurtain_proxy.errors import IronCurtainError


class SafeguardError(IronCurtainError):
    """A safeguard cannot be had, or cannot be used."""


class SnapshotError(SafeguardError):
    """What the call may touch cannot be held: the call is escalated instead.

    The message names no path: some of it may reach the agent.
    """


class RollbackError(SafeguardError):
    """What was held cannot be put back. The message is for a person and names paths."""


class NoSnapshotError(RollbackError):
    """There is no such snapshot."""


class ConflictError(RollbackError):
    """What is there now is neither what was held nor what the call left. Nothing was changed."""

    def __init__(self, message: str, conflicts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts
        """The paths, and `HEAD` or names of branches."""
