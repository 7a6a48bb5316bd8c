"""The files of pins: reading, and changes under a lock.

One file for each way that a server is started, so that a damaged one costs no other server. All
proxies of this user share them.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.server import SECTIONS, Section
from ironcurtain_proxy.pins.pinned import Parts, PinnedPart, ServerPins
from ironcurtain_proxy.private_files import KeptFile, Stamp, make_private_directory

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
            return read_pins(path.read_bytes())
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
