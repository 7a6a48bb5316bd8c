"""What one session has heard from its user and read in results, and where a target comes from.

Theory of operation. A result is only put aside when it comes; of a large one, its first texts. It
is read in a thread, when a target is looked up:

    result ── note ──▶ put aside ── settle ──▶ digests of keys: at most 64 Ki, oldest dropped
    user's words ──────────────── settle ──▶ the last messages
    call ── targets ──▶ each piece: user? own? in a result? nobody.

Every bound fails towards `nobody`: a value that was dropped, came too late or stands beyond the
first mebibyte of a result was named by nobody. Results are never taken for the user's words: these
two are kept apart, so that a server that floods the one loses nothing but its own and other
results. One book belongs to one session, and so to one agent.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import islice, repeat
from threading import Lock
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import orjson
from msgspec import Struct

from ironcurtain_proxy.model.request import (
    TARGET_ROLES,
    AccessRequest,
    ByNobody,
    ByUser,
    InResult,
    Own,
    PathValue,
    Target,
    TargetOrigin,
    UrlValue,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, list_of
from ironcurtain_proxy.origins.keys import (
    Spelling,
    TargetPiece,
    coarse_keys,
    exact_key,
    exact_keys,
    folded,
    key_of,
    pieces_of,
    says,
)

MOST_KEYS: Final = 1 << 16
"""The most values of results that are remembered."""
_MOST_OWN: Final = 1 << 14
_MOST_OF_RESULT: Final = 1 << 14
"""The most values of one result: beyond it one result could push out all others."""
_MOST_TEXT: Final = 1 << 20
"""The most characters of one result that are read."""
_MOST_STEPS: Final = 1 << 15
"""The most members of one result that are looked at."""
_MOST_WHOLE: Final = 1 << 16
"""The most bytes of a result that is put aside whole: the texts of a larger one are taken out."""
_BESIDES: Final = 1 << 10
"""The bytes that a result takes beside its texts."""
_MOST_WAITING: Final = 1 << 22
"""The most bytes of results that wait to be read; the oldest are dropped."""
_MOST_MESSAGES: Final = 5
_MOST_MESSAGE: Final = 1 << 16
"""The most characters of one message of the user's: more was pasted."""
_MOST_PIECES: Final = 1 << 10
"""The most targets of one call that are looked up; further ones were named by nobody."""
_DEADLINE: Final = 2.0
"""Seconds for all of this; what is not known then was named by nobody."""
_UNREAD: Final = frozenset({"_meta", "blob", "data", "mimeType"})
"""Members that the agent's model is not shown as text."""

Digest: TypeAlias = bytes
OwnRecords: TypeAlias = Mapping[tuple[str, str], frozenset[str]]
"""The tools whose results are the user's own records, with the members that count, or empty if all
count."""


class UserWords(Protocol):
    """A message of the user's, as `mailbox.user_message` reads it."""

    @property
    def text(self) -> str:
        """The message as it came."""


class _Texts(Struct, frozen=True):
    """What is read of a result."""

    named: tuple[str, ...]
    own: tuple[str, ...]
    """Those of the texts that the operator calls the user's own."""


class _Waiting(Struct, frozen=True):
    """A result that is put aside."""

    source: InResult
    held: bytes | _Texts
    """What is read of it, or the JSON of a short one."""
    size: int


class OriginBook:
    """The origins of targets in one session."""

    def __init__(
        self,
        spelling: Spelling,
        own: OwnRecords,
        words: Callable[[], UserWords | None],
        now: Callable[[], datetime],
    ) -> None:
        """Begin without any.

        Args:
            spelling: where paths in texts start from.
            own: the tools whose results are the user's own records.
            words: reads the user's last message.
            now: the time; aware, UTC.
        """
        self._spelling, self._own_records, self._words, self._now = spelling, own, words, now
        self._secret = os.urandom(16)  # so that nobody can choose two values with one digest
        self._index: dict[Digest, tuple[InResult, bool]] = {}
        self._own: dict[Digest, None] = {}
        self._messages: deque[tuple[UserWords, frozenset[str]]] = deque(maxlen=_MOST_MESSAGES)
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._lock = Lock()

    # --- what comes in ---------------------------------------------------------------------------

    def note(
        self, server: str, tool: str, request: AccessRequest | None, answer: ToolResult
    ) -> None:
        """Put a result aside that the agent gets. Never reads it all."""
        written = answer.written
        held: bytes | _Texts
        if written is not None and len(written) <= _MOST_WHOLE:
            # A copy: the original has a large block, and what would keep that slows down each read.
            held, size = bytes(memoryview(written)), len(written)
        else:
            held = self._texts(answer, server, tool)
            size = sum(map(len, held.named))
        size += _BESIDES
        source = InResult(server, tool, _about(request), self._now())
        self._waiting.append(_Waiting(source, held, size))
        self._size += size
        while self._size > _MOST_WAITING and len(self._waiting) > 1:
            self._size -= self._waiting.popleft().size

    def _texts(self, answer: ToolResult, server: str, tool: str) -> _Texts:
        fields = self._own_records.get((server, tool))
        own = () if fields is None or answer.has_failed else _members(answer, fields)
        return _Texts(_texts(answer), own)

    def _hear(self) -> None:
        message = self._words()
        if message is None or any(message == heard for heard, _ in self._messages):
            return
        keys = frozenset(exact_keys(message.text[:_MOST_MESSAGE], self._spelling))
        self._messages.append((message, keys))

    def commit(self) -> None:
        """Read the user's last message, and all that waits. Blocks."""
        with self._lock:
            self._hear()
            while self._waiting:
                one = self._waiting.popleft()
                self._size -= one.size
                self._read(one)

    def _read(self, one: _Waiting) -> None:
        source, held = one.source, one.held
        if isinstance(held, bytes):
            try:
                answer = ToolResult(orjson.loads(held))
            except orjson.JSONDecodeError:
                return  # half a character, which other readers of JSON take: nobody named it
            held = self._texts(answer, source.server, source.tool)
        named = (key for text in held.named for key in coarse_keys(text, self._spelling))
        for key in islice(dict.fromkeys(islice(named, 4 * _MOST_OF_RESULT)), _MOST_OF_RESULT):
            digest = self._digest(key)
            known = self._index.pop(digest, None)
            # The first result that named it counts, and it is no longer the only one.
            is_only = known is None or (known[1] and known[0] is source)
            self._index[digest] = (source if known is None else known[0], is_only)
            if len(self._index) > MOST_KEYS:
                del self._index[next(iter(self._index))]
        for text in held.own:
            for key in islice(self._own_keys(text), _MOST_OF_RESULT):
                digest = self._digest(key)
                self._own.pop(digest, None)
                self._own[digest] = None
                if len(self._own) > _MOST_OWN:
                    del self._own[next(iter(self._own))]

    def _own_keys(self, text: str) -> Iterator[str]:
        # A record is a whole value: a stranger who may name a channel writes sentences into it.
        for line in text.splitlines():
            name = line.strip().lstrip("-*\u2022").strip()
            yield key_of("name", name)
            if not any(map(str.isspace, name)):
                yield from exact_keys(name, self._spelling)

    def _digest(self, key: str) -> Digest:
        raw = key.encode("utf-8", "surrogatepass")
        return blake2b(raw, digest_size=8, key=self._secret).digest()

    # --- what is asked ---------------------------------------------------------------------------

    async def targets(self, request: AccessRequest) -> tuple[Target, ...]:
        """Return every target of a call with its origin, in the order of its arguments."""
        found = [
            (fact.name, fact.roles, piece)
            for fact in request.arguments
            if not TARGET_ROLES.isdisjoint(fact.roles)
            for value in fact.values
            for piece in pieces_of(value, fact.roles, self._spelling)
        ]
        pieces = [piece for _, _, piece in found[:_MOST_PIECES]]
        origins: Sequence[TargetOrigin] = ()
        if pieces:
            with anyio.move_on_after(_DEADLINE):
                # The words are read from the disk, and results may be long.
                origins = await anyio.to_thread.run_sync(
                    self.origins, pieces, abandon_on_cancel=True
                )
        known = [*origins, *repeat(ByNobody(), len(found) - len(origins))]
        named = zip(found, known, strict=True)
        return tuple(
            dict.fromkeys([Target(name, one.text, roles, by) for (name, roles, one), by in named])
        )

    def origins(self, pieces: Sequence[TargetPiece]) -> Sequence[TargetOrigin]:
        """Return where targets come from, after reading all that waits. Blocks."""
        self.commit()
        return [self._origin(piece) for piece in pieces]

    def _origin(self, piece: TargetPiece) -> TargetOrigin:
        exact = exact_key(piece)
        if any(exact in keys for _, keys in self._messages) or self._is_said(piece):
            return ByUser()
        if piece.own or self._digest(exact) in self._own:
            return Own()
        known = self._index.get(self._digest(key_of(piece.kind, folded(piece.text))))
        if known is None:
            return ByNobody()
        source, is_only = known
        return InResult(source.server, source.tool, source.about, source.at, is_only)

    def _is_said(self, piece: TargetPiece) -> bool:
        return piece.kind == "name" and any(
            says(message.text[:_MOST_MESSAGE], piece) for message, _ in self._messages
        )


def _about(request: AccessRequest | None) -> str:
    """Return the host or path that a call named; empty if it named none."""
    for fact in () if request is None else request.arguments:
        for value in fact.values:
            if isinstance(value, UrlValue):
                return value.domains[0][:200]
            if isinstance(value, PathValue):
                return value.text[:200]
    return ""


def _texts(answer: ToolResult) -> tuple[str, ...]:
    """Return the first texts of an answer, names of members and numbers among them."""
    found: list[str] = []
    left, open_ = _MOST_TEXT, deque[Json]([dict(answer.result or answer.error or {})])
    for _ in range(_MOST_STEPS):
        if not open_ or left <= 0:
            break
        value = open_.popleft()
        if isinstance(value, dict):
            names = [name for name in islice(value, _MOST_OF_RESULT) if name not in _UNREAD]
            open_.extend([value[name] for name in names])
            value = "\n".join(names)
        elif isinstance(value, list):
            open_.extend(islice(value, _MOST_OF_RESULT))
            continue
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value:
            found.append(value[:left])
            left -= len(value)
    return tuple(found)


def _members(answer: ToolResult, names: frozenset[str]) -> tuple[str, ...]:
    """Return the texts of these members, at any depth of what a result holds; no names: all."""
    open_: deque[tuple[Json, bool]] = deque([(one, not names) for one in _json_of(answer)])
    found: list[str] = []
    for _ in range(_MOST_STEPS):
        if not open_:
            break
        value, counts = open_.popleft()
        if isinstance(value, list):
            open_.extend([(one, counts) for one in islice(value, _MOST_OF_RESULT)])
        elif isinstance(value, dict):
            items = islice(value.items(), _MOST_OF_RESULT)
            open_.extend([(one, counts or name in names) for name, one in items])
        elif counts and isinstance(value, str | int) and not isinstance(value, bool):
            found.append(str(value)[:_MOST_TEXT])
    return tuple(found)


def _json_of(answer: ToolResult) -> Iterator[Json]:
    result = answer.result or {}
    if "structuredContent" in result:
        yield result["structuredContent"]
        return
    for block in list_of(result.get("content")):
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and len(text) <= _MOST_TEXT:
            try:
                yield orjson.loads(text)
            except orjson.JSONDecodeError:
                yield text
