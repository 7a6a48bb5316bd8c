"""The gitlinks of an index: directories that git looks into as repositories of their own.

`git status` in a workspace runs git again in each of them, with the configuration that lies there.
An index that this module does not understand, or that leaves entries to another file, is refused.
The format is git's `index-format`: versions 2, 3 and 4.
"""

import struct
from typing import Final

_GITLINK: Final = 0o160000
_KIND: Final = 0o170000
_DIRECTORY: Final = 0o040000
_EXTENDED: Final = 0x4000
_FIXED: Final = 40
"""The bytes of an entry before its object name: times, device, inode, mode, owner, size."""
_PLAIN: Final = 2
_COMPRESSED: Final = 4
"""Versions: without extended flags, and with paths that leave out what the one before has."""


class UnreadableIndexError(ValueError):
    """Raised for an index that is damaged, or of a form that this module does not read."""


def gitlinks(index: bytes, *, hash_length: int = 20) -> frozenset[bytes]:
    """Return the paths of the gitlinks in an index, relative to the top of its worktree.

    Args:
        index: the content of the file; empty where there is none.
        hash_length: the bytes of an object name: 20, or 32 in a repository of SHA-256.

    Raises:
        UnreadableIndexError: the index is damaged, of an unknown version, or split.
    """
    if not index:
        return frozenset()
    try:
        signature, version, count = struct.unpack_from(">4sII", index)
        if signature != b"DIRC" or version not in range(_PLAIN, _COMPRESSED + 1):
            raise UnreadableIndexError("no index of a version that is known")
        found: set[bytes] = set()
        place, path = 12, b""
        for _ in range(count):
            place, path, mode = _entry(index, place, path, version, hash_length)
            if mode & _KIND == _DIRECTORY:
                # A sparse index keeps a whole directory, and what is linked in it, as one entry.
                raise UnreadableIndexError("the index keeps whole directories as one entry")
            if mode & _KIND == _GITLINK:
                found.add(path)
        _refuse_split(index, place, hash_length)
    except (struct.error, ValueError) as error:
        raise UnreadableIndexError(str(error) or "the index is damaged") from error
    return frozenset(found)


def _entry(
    index: bytes, start: int, before: bytes, version: int, hash_length: int
) -> tuple[int, bytes, int]:
    """Return where the next entry begins, and the path and mode of this one."""
    (mode,) = struct.unpack_from(">I", index, start + 24)
    place = start + _FIXED + hash_length
    (flags,) = struct.unpack_from(">H", index, place)
    place += 2
    if flags & _EXTENDED:
        if version == _PLAIN:
            raise UnreadableIndexError("an entry of version 2 has extended flags")
        place += 2
    if version == _COMPRESSED:
        dropped, place = _varint(index, place)
        end = index.index(0, place)
        if dropped > len(before):
            raise UnreadableIndexError("an entry drops more than the path before it has")
        return end + 1, before[: len(before) - dropped] + index[place:end], mode
    end = index.index(0, place)
    # Padded with one to eight zero bytes, so that the entry's length is a multiple of eight.
    length = end - start
    return start + (length + 8) // 8 * 8, index[place:end], mode


def _varint(index: bytes, place: int) -> tuple[int, int]:
    """Decode git's offset encoding. Return the value, and where it ends."""
    (byte,) = struct.unpack_from(">B", index, place)
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        (byte,) = struct.unpack_from(">B", index, place)
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, place + 1


def _refuse_split(index: bytes, place: int, hash_length: int) -> None:
    """Refuse an index of which entries stand in another file."""
    while place + 8 <= len(index) - hash_length:
        name, length = struct.unpack_from(">4sI", index, place)
        if name == b"link":
            raise UnreadableIndexError("the index is split over several files")
        place += 8 + length
