"""The ways on which notices leave, as the operator configures them."""

from pathlib import Path
from typing import ClassVar, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import WithSecrets


class CommandChannel(Struct, frozen=True, kw_only=True):
    """Runs a program, with the notice as its last arguments.

    A review: the id and the operation. A summary: `permission_summary`, the number of calls, each
    operation as `edit=30,read=12`, the highest risk, and since when.
    """

    argv: tuple[str, ...]


class WebhookChannel(WithSecrets, frozen=True, kw_only=True):
    """Posts JSON."""

    hidden: ClassVar[frozenset[str]] = frozenset({"url"})

    url: str
    """Never logged: to know the address is often enough to post there."""


class FileChannel(Struct, frozen=True, kw_only=True):
    """Appends a JSON line."""

    path: Path


class TmuxChannel(Struct, frozen=True, kw_only=True):
    """Shows a message in a status line."""

    target: str
    """The pane, by its name in tmux."""
    socket: Path | None = None
    """The socket of the tmux server. `None` means its default."""


NoticeChannel: TypeAlias = CommandChannel | WebhookChannel | FileChannel | TmuxChannel
