"""The pins of one session: trust at first sight, and the changes that a person must accept.

Theory of operation:

    a server lists a section ── never listed before ──▶ all of it is trusted and written down
      │ listed before
      ▼
    each part ── as it was trusted ──▶ shown and used
      └─ new, or different ──▶ held: hidden and denied; written down as an offer for a person

Where a file cannot be read or a first listing not be written, everything of its server is held: a
server that is trusted anew each time is not trusted at all. `warn` holds nothing and says the same.

The files are changed under a lock. There is one file for each way that a server is started, so that
a damaged one costs no other server. All proxies of this user share them.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.server import SECTIONS, PinMode, Section
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.pinned import (
    INSTRUCTIONS,
    MOST_NOTED,
    TITLE,
    Finding,
    Parts,
    PinnedPart,
    ServerPins,
    new_data,
    scan,
)
from ironcurtain_proxy.ports import HeldParts
from ironcurtain_proxy.private_files import KeptFile, Stamp, make_private_directory, read_regular

# --- the file -------------------------------------------------------------------------------------
# A file of pins as bytes, and back. A file with any other content is refused.


_VERSION: Final = 1


class _PinsFile(Struct, forbid_unknown_fields=True):
    """The form of the file. Every member is there: what is missing was not trusted."""

    version: int
    server: str
    launch: str
    trusted: dict[Section, dict[str, PinnedPart]]
    offered: dict[Section, dict[str, PinnedPart]]


class PinsFormatError(ValueError):
    """A file that is damaged, or not of this format."""


def pins_bytes(pins: ServerPins) -> bytes:
    """Return the content of the file."""
    document = {"version": _VERSION, **to_builtins(pins)}
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def read_pins(raw: bytes) -> ServerPins:
    """Return the pins in a file.

    Raises:
        PinsFormatError: the file cannot be used.
    """
    try:
        found = json.loads(raw, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise PinsFormatError("is damaged") from None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise PinsFormatError("is no file of pins")
    if found["version"] != _VERSION:
        raise PinsFormatError("was written by another version")
    try:
        read = convert(found, _PinsFile)
    except ValidationError:
        raise PinsFormatError("is damaged") from None
    trusted, offered = _in_order(read.trusted), _in_order(read.offered)
    return ServerPins(server=read.server, launch=read.launch, trusted=trusted, offered=offered)


def _in_order(sections: Mapping[Section, Parts]) -> Mapping[Section, Parts]:
    return {section: sections[section] for section in SECTIONS if section in sections}


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


PINS_NAME: Final = "pins"
"""The name of the directory in the state directory."""
MOST_BYTES: Final = 32 * 1024 * 1024
_LOCK_SECONDS: Final = 2.0
_SUFFIX: Final = ".json"


class PinsFileError(IronCurtainError):
    """A file of pins that cannot be used: nothing of its server is trusted."""

    def __init__(self, message: str, launch: str = "") -> None:
        super().__init__(message)
        self.launch = launch
        """The digest of the server's start."""


class StoredPins(Struct, frozen=True):
    """The content of one file at one moment."""

    pins: ServerPins
    stamp: Stamp


class PinStore(Struct, frozen=True):
    """The directory of all files. Opens nothing until it is used."""

    directory: Path
    fleet: Path | None = None
    """The directory of pins that no user accepts or changes, where they are in force."""

    def stamp(self, launch: str) -> Stamp:
        """Return the stamp of a file, in microseconds.

        Raises:
            PinsFileError: the disk does not answer.
        """
        return _file(self._path(launch)).stamp()

    def read(self, launch: str, server: str) -> StoredPins:
        """Return the pins of a server, without any if there is no file.

        Raises:
            PinsFileError: the file is not trusted, or cannot be read.
        """
        path = self._path(launch)
        found = self._read(path)
        found = found or StoredPins(ServerPins(server=server, launch=launch), ())
        above = None if self.fleet is None else self._read_above(self.fleet / path.name)
        for one in (found.pins, above):
            if one is not None and one.launch != launch:
                raise _unusable(path, "is of another server")
        if above is None:
            return found
        pins = replace(found.pins, trusted={**found.pins.trusted, **above.trusted})
        return StoredPins(pins, found.stamp)

    def all(self) -> Iterator[ServerPins | PinsFileError]:
        """Yield the pins of all servers, and an error for each unreadable file."""
        with suppress(OSError):
            for path in sorted(self.directory.glob(f"*{_SUFFIX}")):
                try:
                    found = self._read(path)
                except PinsFileError as error:
                    yield error
                else:
                    if found is not None:
                        yield found.pins

    def update(
        self, launch: str, server: str, change: Callable[[ServerPins], ServerPins]
    ) -> StoredPins:
        """Change a file while no other process of ours does. Takes a few milliseconds.

        Raises:
            PinsFileError: it cannot be changed, and is as it was.
        """
        path = self._path(launch)
        try:
            make_private_directory(self.directory)
            with _locked(path):
                before = self.read(launch, server)
                after = change(before.pins)
                if after == before.pins and before.stamp:
                    return before
                return StoredPins(after, _file(path).replace(pins_bytes(after)))
        except OSError as error:
            raise _unusable(path, f"cannot be written: {error.strerror}") from None

    def forget(self, launch: str) -> None:
        """Trust a server anew when it starts next.

        Raises:
            PinsFileError: its file is still there.
        """
        path = self._path(launch)
        try:
            with _locked(path):
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unusable(path, f"cannot be removed: {error.strerror}") from None

    def put_aside(self, launch: str) -> Path:
        """Move an unusable file out of the way. Return its new place.

        Raises:
            PinsFileError: it is still there.
        """
        path = self._path(launch)
        aside = path.with_suffix(".damaged")
        try:
            with _locked(path):
                path.replace(aside)
        except OSError as error:
            raise _unusable(path, f"cannot be moved: {error.strerror}") from None
        return aside

    def _path(self, launch: str) -> Path:
        return self.directory / f"{launch}{_SUFFIX}"

    def _read_above(self, path: Path) -> ServerPins | None:
        """Return the fleet's pins of a server, which belong to an administrator."""
        try:
            return read_pins(read_regular(path))
        except FileNotFoundError:
            return None
        except (OSError, PinsFormatError) as error:
            raise _unusable(path, str(error)) from None

    def _read(self, path: Path) -> StoredPins | None:
        found = _file(path).read()
        try:
            return None if found is None else StoredPins(read_pins(found[0]), found[1])
        except PinsFormatError as error:
            raise _unusable(path, str(error)) from None


def _file(path: Path) -> KeptFile:
    return KeptFile(path, MOST_BYTES, partial(_unusable, path))


def _locked(path: Path) -> AbstractContextManager[None]:
    """Hold the lock of all proxies."""
    return _file(path).locked(path.with_suffix(".lock"), _LOCK_SECONDS)


def _unusable(path: Path, what: str) -> PinsFileError:
    return PinsFileError(f"pins of a server: {path} {what}", path.stem)


# --- book


_log: Final = logging.getLogger(__name__)

_CHANGED: Final = "differs from what was accepted"
_NEW: Final = "is new, and nobody has accepted it"
_UNUSABLE: Final = "cannot be compared with what was accepted"


class PinnedServer(Struct, frozen=True):
    """The settings of one server's pins."""

    name: str
    launch: str
    mode: PinMode
    workspace: str | None = None
    """The workspace of the session, which is taken out of a server's descriptions."""


class PinBook(Struct, kw_only=True):
    """The pins of one session."""

    store: PinStore
    servers: Mapping[str, PinnedServer]
    """The servers by the operator's name."""
    _read: dict[str, StoredPins] = field(default_factory=dict)
    _holds: dict[tuple[str, Section], HeldParts] = field(default_factory=dict)
    """The held parts of each section that was listed."""
    _said: set[str] = field(default_factory=set)

    def listed(self, server: str, section: Section, entries: Mapping[str, Json]) -> HeldParts:
        """Return the held parts of a section, after its server has listed the whole section.

        Args:
            server: the operator's name of it.
            section: what it listed.
            entries: its parts by name, as the server wrote them.
        """
        found = self._judged(self.servers[server], section, entries, is_whole=True)
        self._holds[server, section] = found
        return found

    def seen(self, server: str, section: Section, name: str, value: Json) -> str | None:
        """Return why a part that stands in no list is held, or None if it is not held."""
        found = self._judged(self.servers[server], section, {name: value}, is_whole=False)
        self._holds[server, section] = {**self._holds.get((server, section), {}), **found}
        return found.get(name)

    def is_listed(self, server: str, section: Section) -> bool:
        """Return whether the content of a section is known to the session."""
        return (server, section) in self._holds

    def held(self, server: str, section: Section, name: str) -> str | None:
        """Return why a part is held as of the last listing, or None if it is not held."""
        return self._holds.get((server, section), {}).get(name)

    def instructions(self, server: str, text: str) -> bool:
        """Return whether a server's instructions may be passed on."""
        return not self.listed(server, "instructions", {INSTRUCTIONS: text})

    def title(self, server: str, text: str) -> bool:
        """Return whether a server's title may be passed on."""
        return not self.listed(server, "title", {TITLE: text})

    def changed_servers(self) -> tuple[str, ...]:
        """Return the servers with held parts whose files have changed since they were read."""
        names = {server for (server, _), holds in self._holds.items() if holds}
        return tuple([name for name in sorted(names) if self._is_stale(self.servers[name])])

    def forget(self, server: str, section: Section | None = None) -> None:
        """Compare a server with its file again; its lists are fetched where they are needed."""
        for key in [*self._holds]:
            if key[0] == server and section in (None, key[1]):
                del self._holds[key]

    # --- one server

    def _is_stale(self, server: PinnedServer) -> bool:
        known = self._read.get(server.name)
        try:
            return known is None or self.store.stamp(server.launch) != known.stamp
        except PinsFileError:
            return False

    def _judged(
        self, server: PinnedServer, section: Section, entries: Mapping[str, Json], *, is_whole: bool
    ) -> HeldParts:
        if server.mode == "off":
            return {}
        try:
            pins = self._current(server)
            parts = _parts(entries, pins.trusted.get(section, {}), server.workspace)
            data = new_data(section, parts, pins.trusted)
            if _is_first(pins, section) if is_whole else _unknown(pins, section, parts):
                pins = self._trust(server, section, parts)
            elif data:
                pins = self._note(server, section, data, pins)
        except PinsFileError as error:
            self._say(f'server "{server.name}": {error}; `ironcurtain-proxy pins` says more')
            return {} if server.mode == "warn" else dict.fromkeys(entries, _UNUSABLE)
        known = pins.trusted.get(section, {})
        parts = {name: part for name, part in parts.items() if name in known or name not in data}
        holds = {
            name: _CHANGED if name in known else _NEW
            for name, part in parts.items()
            if name not in known or not known[name].is_same(part)
        }
        self._offer(server, section, parts, pins)
        if holds:
            self._tell(server, section, holds)
        return {} if server.mode == "warn" else holds

    def _current(self, server: PinnedServer) -> ServerPins:
        if self._is_stale(server):
            self._read[server.name] = self.store.read(server.launch, server.name)
        return self._read[server.name].pins

    def _trust(
        self, server: PinnedServer, section: Section, parts: Mapping[str, PinnedPart]
    ) -> ServerPins:
        """Trust a section at first sight, unless another proxy has done so a moment ago."""

        def first(pins: ServerPins) -> ServerPins:
            if not _is_first(pins, section) and section != "views":
                return pins
            return pins.with_first(section, parts)

        self._read[server.name] = self.store.update(server.launch, server.name, first)
        self._warn_of_signs(server, section, parts)
        return self._read[server.name].pins

    def _note(
        self, server: PinnedServer, section: Section, data: Parts, pins: ServerPins
    ) -> ServerPins:
        """Keep what a server says of new data, unless it is too much or the disk is full."""
        room = MOST_NOTED - len(pins.trusted[section])
        kept = dict(islice(data.items(), max(room, 0)))
        self._warn_of_signs(server, section, kept)
        with suppress(PinsFileError):
            if kept:
                self._read[server.name] = self.store.update(
                    server.launch, server.name, lambda now: now.with_first(section, kept)
                )
        return self._read[server.name].pins

    def _warn_of_signs(self, server: PinnedServer, section: Section, parts: Parts) -> None:
        others = [name for name in self.servers if name != server.name]
        for finding in _findings(parts, others):
            self._say(f'server "{server.name}": {section} {finding}')

    def _offer(
        self,
        server: PinnedServer,
        section: Section,
        parts: Mapping[str, PinnedPart],
        pins: ServerPins,
    ) -> None:
        """Write the offers for a person to accept.

        A part that cannot be written is held all the same.
        """
        if pins.with_offers(section, parts) == pins:
            return
        try:
            self._read[server.name] = self.store.update(
                server.launch, server.name, lambda now: now.with_offers(section, parts)
            )
        except PinsFileError as error:
            self._say(f'server "{server.name}": {error}: `pins diff` cannot show what changed')

    def _tell(self, server: PinnedServer, section: Section, holds: HeldParts) -> None:
        what = "is used all the same (pins: warn)" if server.mode == "warn" else "is held back"
        names = ", ".join(sorted(ascii(name)[1:-1] for name in holds)[:5])
        more = f" and {len(holds) - 5} more" if len(holds) > 5 else ""  # noqa: PLR2004
        self._say(
            f'server "{server.name}": what it says of itself changed, and {what}: {section} '
            f"{names}{more}; the change, and how to accept it: ironcurtain-proxy pins diff "
            f"{server.name}"
        )

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _log.warning("%s", text)


def _parts(
    entries: Mapping[str, Json], known: Parts, workspace: str | None
) -> dict[str, PinnedPart]:
    """Return the parts without the workspace, except parts that were trusted with it before."""
    found: dict[str, PinnedPart] = {}
    for name, value in entries.items():
        raw = PinnedPart.of(value)
        is_known = name in known and known[name].is_same(raw)
        found[name] = raw if is_known else PinnedPart.of(without_workspace(value, workspace))
    return found


def _is_first(pins: ServerPins, section: Section) -> bool:
    """Return whether a section, or for data anything of it, is listed for the first time."""
    known = pins.trusted.get(section)
    return known is None or (section == "resources" and not known)


def _unknown(pins: ServerPins, section: Section, parts: Mapping[str, PinnedPart]) -> bool:
    known = pins.trusted.get(section, {})
    return any(name not in known for name in parts)


def _findings(parts: Mapping[str, PinnedPart], others: Iterable[str]) -> list[Finding]:
    names = tuple(others)
    return [finding for name, part in parts.items() for finding in scan(name, part.value, names)]


WORD: Final = "@workspace"
_FEWEST: Final = 2
"""The fewest components of a path that is replaced: `/` and `/home` are everywhere."""


def without_workspace(value: Json, workspace: str | None) -> Json:
    """Return a value with `@workspace` in the place of the path.

    The same server says another path in each workspace. A value that holds the word itself stays.

    Args:
        value: what a server said.
        workspace: its path, or None if there is none.
    """
    if workspace is None or len(workspace.strip("/").split("/")) < _FEWEST:
        return value
    try:
        text = json.dumps(value)
        spelled = json.dumps(workspace)[1:-1]
        if spelled not in text or WORD in text:
            return value
        found: Json = json.loads(
            re.sub(rf"(?<![\w.-]){re.escape(spelled)}(?![\w-]|\.\w)", WORD, text)
        )
    except (RecursionError, ValueError):
        return value
    return found
