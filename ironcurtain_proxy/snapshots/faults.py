"""What can go wrong with a rollback."""

from ironcurtain_proxy.errors import IronCurtainError


class RollbackError(IronCurtainError):
    """What was held cannot be put back. The message is for a person and names paths."""


class NoPointError(RollbackError):
    """There is no such point."""


class ConflictError(RollbackError):
    """What is there now is neither what was held nor what the call left. Nothing was changed."""

    def __init__(self, message: str, conflicts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts
        """The paths, and why."""
