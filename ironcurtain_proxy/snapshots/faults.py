"""The errors of rollbacks."""

from ironcurtain_proxy.errors import IronCurtainError


class RollbackError(IronCurtainError):
    """A state cannot be restored. The message is for a person and names paths."""


class NoPointError(RollbackError):
    """A point that does not exist."""


class ConflictError(RollbackError):
    """The current state is neither the held one nor the call's. Nothing was changed."""

    def __init__(self, message: str, conflicts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts
        """The paths, and why."""
