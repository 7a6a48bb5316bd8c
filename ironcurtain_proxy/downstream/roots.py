"""Directories that are added to a server's roots during an approved call.

A server such as npm's filesystem uses its roots as the allowed directories and refuses all others:
without an additional root, an approved call would fail there. This module counts the calls that
need each directory.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import anyio

from ironcurtain_proxy.model.request import AccessRequest, PathValue
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, file_uri, list_of

RootEntry: TypeAlias = Mapping[str, Json]
"""A root, as in the answer to `roots/list`."""

NAME: Final = "escalation-approved"

_SCHEME: Final = "file://"

_PAUSES: Final = (0.003, 0.02, 0.08, 0.2, 0.4)
"""Seconds before each further attempt; usually a few milliseconds are enough."""

_REFUSALS: Final = ("access denied", "outside allowed directories")
"""Servers' messages about a directory outside their roots, in lower case."""


class ServerRoots:
    """The roots of one server, across all its processes."""

    def __init__(self, base: Callable[[], Sequence[RootEntry]]) -> None:
        """Set the base roots, without approved calls."""
        self._base = base
        self._in_use: dict[str, int] = {}

    def listing(self) -> list[RootEntry]:
        """Return the roots as they are now."""
        extra: list[RootEntry] = [{"uri": file_uri(path), "name": NAME} for path in self.opened()]
        return [*self._base(), *extra]

    def opened(self) -> tuple[str, ...]:
        """Return the directories that are open besides the base, each once."""
        return tuple(self._in_use)

    def open(self, directories: Sequence[str]) -> tuple[str, ...]:
        """Add directories, absolute and real. Returns those to close: some need no opening."""
        wanted = self._not_told_of(directories)
        for path in wanted:
            self._in_use[path] = self._in_use.get(path, 0) + 1
        return wanted

    def close(self, opened: tuple[str, ...]) -> None:
        """Close directories returned by `open`, unless other calls need them."""
        for path in opened:
            self._in_use[path] -= 1
            if not self._in_use[path]:
                del self._in_use[path]

    def _not_told_of(self, directories: Sequence[str]) -> tuple[str, ...]:
        told = [path for root in self._base() if (path := _path_of(root)) is not None]
        # A server without roots uses its own arguments. One root would take their
        # place, for all calls, and could not be withdrawn: an empty list means nothing to it.
        if not told:
            return ()
        return tuple(
            path
            for path in dict.fromkeys(directories)
            if not any(_is_within(path, known) for known in told)
        )


async def retry_while_outside(
    send: Callable[[], Awaitable[ToolResult]],
    tell_again: Callable[[], Awaitable[None]],
    *,
    only_reads: bool = False,
) -> ToolResult:
    """Send a call, and send it again while the server does not use its new roots yet.

    A server processes new roots some time after it has read them, and does not report the end.

    Args:
        send: sends the call.
        tell_again: makes the server read its roots again: of two changes at once it may have
            applied the older one last.
        only_reads: the tool says that it changes nothing. Then a success that reports a refusal is
            asked for again, too: some tools read several files, and report on each.
    """
    answer = await send()
    for pause in _PAUSES:
        if not says_outside(answer) and not (only_reads and _mentions(answer, _REFUSALS[-1:])):
            break
        await anyio.sleep(pause)
        await tell_again()
        answer = await send()
    return answer


def needed_roots(answer: ToolResult, request: AccessRequest | None) -> tuple[str, ...]:
    """Return the directories of a call that its server refused because they are outside its roots.

    Only the plain words count: whoever says no more than "access denied" may have begun.
    """
    if request is None or not _mentions(answer, _REFUSALS[-1:]):
        return ()
    values = [value for fact in request.arguments for value in fact.values]
    paths = [Path(str(value.path)) for value in values if isinstance(value, PathValue)]
    return tuple(str(path if path.is_dir() else path.parent) for path in paths)


def says_outside(answer: ToolResult) -> bool:
    """Return whether a server refused a call because a directory is outside its roots."""
    return (answer.result or {}).get("isError") is True and _mentions(answer, _REFUSALS)


def _mentions(answer: ToolResult, phrases: tuple[str, ...]) -> bool:
    blocks = list_of(None if answer.result is None else answer.result.get("content"))
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return any(
        words in text.lower() for text in texts if isinstance(text, str) for words in phrases
    )


def _path_of(root: RootEntry) -> str | None:
    uri = root.get("uri")
    if not isinstance(uri, str) or not uri.startswith(f"{_SCHEME}/"):
        return None
    return unquote_to_bytes(uri[len(_SCHEME) :]).decode("utf-8", "surrogateescape")


def _is_within(path: str, directory: str) -> bool:
    base = directory.rstrip("/")
    return path == base or path.startswith(f"{base}/")
