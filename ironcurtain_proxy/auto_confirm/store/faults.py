"""The errors of the store. The import of this file loads no database library."""

from ironcurtain_proxy.errors import IronCurtainError


class StoreError(IronCurtainError):
    """The store cannot be read or written: the engine approves nothing."""


class AlreadyDecidedError(StoreError):
    """The interaction already has its final decision."""


class StoreLostError(StoreError):
    """The open file is no longer the store, or is damaged: it must be opened anew."""
