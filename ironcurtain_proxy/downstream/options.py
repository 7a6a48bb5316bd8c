"""Settings and hooks for all servers together."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.downstream.conversation import AnswerCapacity
from ironcurtain_proxy.downstream.eras import ROOTS
from ironcurtain_proxy.jsonrpc.batch import Batch
from ironcurtain_proxy.jsonrpc.pipes import MAX_LINE
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.launch import Confinement

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.watchman import Watchman

ServerState: TypeAlias = Literal["starting", "ready", "restarting", "failed", "stopped"]
"""`restarting`: it was ready and ended. `failed`: the last attempt to start it came to nothing; it
is tried again. `stopped`: we are closing."""


LOGINS: Final = "logins"
"""The directory below `~/.ironcurtain` with the tokens of servers that are reached over HTTP."""


class DownstreamOptions(Struct, frozen=True, kw_only=True):
    """Settings that hold for every server. Durations are seconds."""

    call_timeout: float = 300.0
    """The deadline of one call."""
    start_deadline: float = 10.0
    """The wait of a list for servers that are starting."""
    call_start_deadline: float = 50.0
    """The wait of a call for its server; below the 60 seconds after which clients give up."""
    initialize_timeout: float = 60.0
    """Seconds for `initialize`, and for each page of tools."""
    list_timeout: float = 30.0
    """Seconds for all pages of a list of resources or prompts."""
    max_message_bytes: int = MAX_LINE
    """The most bytes of one message, in either direction."""
    session_log: Path | None = None
    """The session log, or None if the output of servers is discarded."""
    workspace: str | None = None
    """Working directory of servers that name none. Absolute; None: the proxy's own."""
    confinements: Mapping[str, Confinement] = field(default_factory=dict)
    """The confinement of each server; a server that is missing here runs unconfined."""
    watchman: "Watchman | None" = None
    """Looks after what second instances may write besides, or None if nobody does."""
    state: Path | None = None
    """The session's directory, with servers' own directories; removed with the session."""
    logins: Path | None = None
    """The directory of the tokens of servers that are reached over HTTP, or None if there are
    none."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The proxy's environment, of which a server gets the base variables only."""

    def is_own_directory(self, directory: str | None) -> bool:
        """Return whether a working directory was made for its server."""
        return directory is not None and Path(directory).parent == self.state


async def _nothing(*_: object) -> None:
    return


async def _roots_only(_server: str, _caller: Caller | None) -> Mapping[str, Json]:
    return ROOTS


class Hooks(Struct, kw_only=True):
    """Callbacks for events of servers; set by `wiring` before the servers run."""

    on_tools_changed: Callable[[bool], Awaitable[None]] = _nothing
    """Called when the tools have changed, or a server is ready again; with whether it tells so."""
    on_log: Callable[[str, Mapping[str, Json]], Awaitable[None]] = _nothing
    """Called with a server's name and the raw `params` of its `notifications/message`."""
    on_notice: Callable[[str, str, Mapping[str, Json]], Awaitable[None]] = _nothing
    """Called with a server's name, and the method and raw `params` of a notification."""
    on_question: (
        Callable[
            [str, str, Mapping[str, Json], Sequence[Caller | None]], Awaitable[Mapping[str, object]]
        ]
        | None
    ) = None
    """Answers a question of a server's own; see `QuestionHandler`, or None if all are refused."""
    capabilities: Callable[[str, Caller | None], Awaitable[Mapping[str, Json]]] = _roots_only
    """Gives the client capabilities for a server, of the client of one request."""
    roots: Callable[[str], Sequence[Mapping[str, Json]]] = lambda _: ()
    """Gives the roots of a server."""
    capacity: AnswerCapacity = field(default_factory=AnswerCapacity)
    """The capacity for large answers of all servers."""
    batch: Batch = field(default_factory=Batch)
    """Gets the lines of each read of a server's pipe."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The state of a server."""

    state: ServerState
    error: str = ""
    """The reason why the server is not running, or why it last ended. Without secrets."""
    tools: int = 0
    starts: int = 0
    pid: int | None = None
    """The guardian's process."""
    sandboxed: bool = False
