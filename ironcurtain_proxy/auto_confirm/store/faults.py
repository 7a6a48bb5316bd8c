"""What can go wrong with the store. Importing this file loads no database library."""

from ironcurtain_proxy.errors import IronCurtainError


class StoreError(IronCurtainError):
    """The store cannot be read or written: the engine approves nothing."""


class AlreadyDecidedError(StoreError):
    """The interaction has its final decision: there is never a second one."""


class StoreLostError(StoreError):
    """What is open is not the store any more, or is damaged: it must be opened anew."""
