"""Files of git that make it run something: what waits, the index, and configurations.

A waiting rebase, cherry-pick or revert may run a program when the user goes on with it. `git rebase
--continue` reads its orders from files in `rebase-merge`, and `git cherry-pick --continue` from
files in `sequencer`. A file that is not listed here, or a line that is not understood, may name a
program: a command, a merge strategy, a program that signs. Of a waiting `git am` and of a bisect
nothing is listed.

The index has gitlinks, directories that git looks into as repositories of their own: `git status`
runs git again in each, with the configuration that lies there. Two commands that ran at once have
changed one index, and mean different entries of it: these are merged by path. An index that is not
understood, or that leaves entries to another file, is refused. So is a path that git never adds:
`git checkout .` writes whatever the index names, also `.git/hooks/post-checkout` or a file beside
the worktree. The format is git's `index-format`: versions 2, 3 and 4.

Most keys of a configuration can make git run, or send, something: commands, hooks, filters, other
configurations to include, other places to push to. The few settings that are harmless are known,
such as those of a clone or a new branch.
"""

import hashlib
import posixpath
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ironcurtain_proxy.control_places.rules import folded, read_names
from ironcurtain_proxy.model.values import lazy

# --- git states

_HEX: Final = rb"[0-9a-f]{4,64}"
_ORDER: Final = (
    rb"[ \t]*(?:"
    rb"(?:pick|p|reword|r|edit|e|squash|s|fixup|f|drop|d|revert)(?: -[cC])? " + _HEX + rb"(?: .*)?"
    rb"|(?:label|l|reset|t) [A-Za-z0-9][A-Za-z0-9._/-]*(?: #.*)?"
    rb"|update-ref refs/heads/[A-Za-z0-9][A-Za-z0-9._/-]*"
    rb"|noop|break|b|#.*|"
    rb")[ \t]*"
)
_WAITING: Final[Mapping[str, re.Pattern[bytes]]] = {
    "number": lazy(rb"-?[0-9]{0,12}\n?"),
    "id": lazy(rb"(?:" + _HEX + rb")?\n?"),
    "ids": lazy(rb"(?:" + _HEX + rb"(?: " + _HEX + rb")?\n)*"),
    "reference": lazy(rb"(?:refs/[A-Za-z0-9._/+@-]+|detached HEAD)\n?"),
    "empty": lazy(rb"(?:t|true|1)?\n?"),
    "text": lazy(rb".*", re.DOTALL),
    "author": lazy(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^']|'\\''|'\\!')*'\n?){0,3}"),
    "fixups": lazy(rb"(?:(?:fixup|squash) " + _HEX + rb"\n?)*"),
    "updates": lazy(rb"(?:refs/heads/[A-Za-z0-9._/-]+\n" + _HEX + rb"\n" + _HEX + rb"\n)*"),
    # Atomic, line by line: else the ways to divide blanks multiply.
    "orders": lazy(rb"(?:(?>" + _ORDER + rb")(?:\n|\Z))*+"),
    "options": lazy(
        rb"\[options\]\n(?:\t(?:no-commit|edit|allow-empty|allow-empty-message|drop-redundant-commits|"
        rb"keep-redundant-commits|signoff|record-origin|allow-ff|allow-rerere-auto|mainline) = "
        rb"(?:true|false|[0-9]+)\n)*"
    ),
}
"""What may stand in a file of a waiting operation, by the names of `names.toml`."""


def is_harmless_state(name: str, content: bytes) -> bool:
    """Return whether a file of a waiting operation makes git run nothing.

    Args:
        name: its path in the directory of git.
        content: the file's.
    """
    return any(
        name in names and _WAITING[kind].fullmatch(content) is not None
        for kind, names in read_names().waiting.items()
    )


# --- git index

_KIND_BYTE: Final = 26
"""The byte of an entry's mode with its kind."""
_KIND: Final = 0o170000 >> 8
_GITLINK: Final = 0o160000 >> 8
_DIRECTORY: Final = 0o040000 >> 8
_EXTENDED: Final = 0x4000
_ASSUMED: Final = 0x8000
_SKIPPED: Final = 0x4000
"""Of the extended flags."""
_TIMES: Final = 16
"""The bytes of an entry that hold times."""
_FIXED: Final = 40
"""The bytes of an entry before its object name: times, device, inode, mode, owner, size."""
_PLAIN: Final = 2
_COMPRESSED: Final = 4
"""Versions: without extended flags, and with paths that leave out what the one before has."""
_MODE: Final = slice(24, 28)
_STAGE: Final = 0x3000
_LONGEST_NAME: Final = 0x0FFF
"""The bits of the flags that hold the length of the path, as far as it fits."""
_SHA1: Final = 20
_UNSAFE: Final = lazy(rb"/(?:\.{0,2}|\.[gG][iI][tT][ .]*(?::[^/]*)?|[gG][iI][tT]~1)(?:/|\Z)")
"""In `/` and a path: it leads out of the worktree, or into a directory of git. Git adds none."""
_OFFSETS_VERSION: Final = 1
_SHA256: Final = lazy(rb'^[ \t]*objectformat\s*=\s*"?sha256', re.IGNORECASE | re.MULTILINE)

MOST_READ: Final = 256 << 20
"""The bytes of a file whose content decides. A larger one is kept back."""


EntryKey: TypeAlias = tuple[bytes, int]
"""A path and its stage: an unmerged path has up to three."""


class UnreadableIndexError(ValueError):
    """Raised for an index that is damaged, or of a form that this module does not read."""


def is_index(name: str) -> bool:
    """Return whether a file of this name in a directory of git holds entries of an index."""
    lower = folded(name)
    return lower == "index" or lower.startswith("sharedindex.")


def hash_length_of(settings: bytes) -> int:
    """Return the bytes of an object's name, by the configuration of its repository."""
    return 32 if _SHA256.search(settings) else _SHA1


def names_worktree_alone(index: bytes, settings: bytes) -> bool:
    """Return whether all entries of an index are files that a worktree may hold.

    Unlike `notes_of` this reads an index that leaves entries to another one, or that keeps
    directories as one entry, and takes for harmless what git does not take for an index.
    """
    if not index.startswith(b"DIRC"):
        return True
    try:
        for _ in _places(index, hash_length_of(settings), is_alone=False):
            pass
    except UnreadableIndexError:
        return False
    return True


def resolves_no_more(before: bytes | None, now: bytes) -> bool:
    """Return whether `MERGE_RR` names no file that it did not name before.

    Git copies what these files hold into the repository with the next commit, wherever they are.
    """
    return {*now.split(b"\0")} <= {b"", *(before or b"").split(b"\0")}


class NotedFile(NamedTuple):
    """What an index says of a file besides its name and object."""

    noted: bytes
    is_hidden: bool
    """Whether git shows no change of it: `assume-unchanged` and `skip-worktree`."""

    @property
    def is_gitlink(self) -> bool:
        """Whether git looks into it as a repository of its own."""
        return self.noted[_KIND_BYTE] & _KIND == _GITLINK


def notes_of(index: bytes, *, hash_length: int = _SHA1) -> Mapping[EntryKey, NotedFile]:
    """Return what an index says of each file.

    Raises:
        UnreadableIndexError: it is damaged, of an unknown version, or split.
    """
    return {
        one.key: NotedFile(one.noted(index), one.is_hidden) for one in _places(index, hash_length)
    }


def looked_at_again(
    known: Mapping[EntryKey, NotedFile],
    now: bytes,
    *,
    hash_length: int = _SHA1,
    shows: bool = False,
) -> tuple[bytes, bool]:
    """Return an index with which git reads each file again of which this one notes something new.

    Git compares times and sizes alone, which an index could say of a file that a command changed.
    What other parts of an index say of files and directories is left out.

    Args:
        known: what the user's git noted.
        now: the present content.
        hash_length: the bytes of an object name.
        shows: whether git is to show the changes of files again of which it was to show none.

    Returns:
        The index, and whether there were files of which it newly shows no change.

    Raises:
        UnreadableIndexError: it is damaged, of an unknown version, or split.
    """
    found, end, hides = bytearray(now), 12, False
    for one in _places(now, hash_length):
        was, end = known.get(one.key), one.end
        if was is None or was.noted != one.noted(now):
            found[one.start : one.start + _TIMES] = bytes(_TIMES)
        if one.is_hidden and not (was and was.is_hidden):
            hides, at = True, one.start + _FIXED + hash_length
            if shows:
                found[at] &= ~_ASSUMED >> 8
                if one.flags & _EXTENDED:
                    found[at + 2] &= ~_SKIPPED >> 8
    return bytes(found[:end]) + _digest(found[:end], hash_length), hides


def merged(base: bytes, ours: bytes, theirs: bytes, *, hash_length: int = _SHA1) -> bytes | None:
    """Return the index with the changes of both sides, or None if both changed the same path.

    What git only noted of a file on the disk, such as its times, is no change. Caches that git can
    make again are left out.

    Raises:
        UnreadableIndexError: one of them is damaged, of an unknown version, or split.
    """
    for one in (base, ours, theirs):
        if one[-hash_length:] not in {_digest(one[:-hash_length], hash_length), bytes(hash_length)}:
            raise UnreadableIndexError("the index is damaged")
    before, mine, other = [_entries(one, hash_length) for one in (base, ours, theirs)]
    found: list[tuple[EntryKey, _Entry]] = []
    for key in sorted({*mine, *other}):
        was, here, there = before.get(key), mine.get(key), other.get(key)
        if _is_alike(here, was) or _is_alike(here, there):
            chosen = there
        elif _is_alike(there, was):
            chosen = here
        else:
            return None
        if chosen is not None:
            found.append((key, chosen))
    return _written(found, hash_length)


def says_the_same(one: bytes, other: bytes) -> bool:
    """Return whether two indexes differ at most in what git only noted of files on the disk."""
    try:
        left, right = _entries(one, _SHA1), _entries(other, _SHA1)
    except UnreadableIndexError:
        return False
    return left.keys() == right.keys() and all(_is_alike(left[key], right[key]) for key in left)


class _Entry(NamedTuple):
    fixed: bytes
    """What git notes of the file, and its mode."""
    name: bytes
    """The object's."""
    flags: int
    """Without the length of the path."""
    extended: int


class _PlaceOfEntry(NamedTuple):
    path: bytes
    start: int
    """Where the entry begins."""
    flags: int
    extended: int
    end: int
    """Where the next one begins."""

    def noted(self, index: bytes) -> bytes:
        return index[self.start : self.start + _FIXED]

    @property
    def key(self) -> EntryKey:
        return self.path, self.flags & _STAGE

    @property
    def is_hidden(self) -> bool:
        return bool(self.flags & _ASSUMED or self.extended & _SKIPPED)


def _is_alike(one: _Entry | None, other: _Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.fixed[_MODE] == other.fixed[_MODE] and one[1:] == other[1:]


def _entries(index: bytes, hash_length: int) -> Mapping[EntryKey, _Entry]:
    found: dict[EntryKey, _Entry] = {}
    for one in _places(index, hash_length):
        end = one.start + _FIXED + hash_length
        name, flags = index[one.start + _FIXED : end], one.flags & ~_LONGEST_NAME
        found[one.key] = _Entry(one.noted(index), name, flags, one.extended)
    return found


def _places(index: bytes, hash_length: int, *, is_alone: bool = True) -> Iterator[_PlaceOfEntry]:
    """Yield where the entries stand. This runs over all of them for each change of an index.

    Args:
        index: the content of the file.
        hash_length: the bytes of an object name.
        is_alone: whether an index is refused that git reads together with something else.
    """
    if not index:
        return
    try:
        signature, version, count = struct.unpack_from(">4sII", index)
        if signature != b"DIRC" or version not in range(_PLAIN, _COMPRESSED + 1):
            raise UnreadableIndexError("no index of a version that is known")
        start, path = 12, b""
        starts: list[int] = []
        for _ in range(count):
            at = start + _FIXED + hash_length + 2
            flags, extended = index[at - 2] << 8 | index[at - 1], 0
            if flags & _EXTENDED:
                if version == _PLAIN:
                    raise UnreadableIndexError("an entry of version 2 has extended flags")
                extended, at = index[at] << 8 | index[at + 1], at + 2
            before = path if version == _COMPRESSED else None
            path, following, is_whole = _path(index, start, at, before)
            is_directory = index[start + _KIND_BYTE] & _KIND == _DIRECTORY
            length = flags & _LONGEST_NAME
            if is_directory or length != len(path) or _UNSAFE.search(b"/" + path):
                _check_path(path, length, is_directory=is_directory, is_alone=is_alone)
            yield _PlaceOfEntry(path, start, flags, extended, following)
            starts.append(start if is_whole else 0)
            start = following
        _check_rest(index, start, index[: -hash_length or None], starts, is_alone=is_alone)
    except (struct.error, ValueError, IndexError) as error:
        raise UnreadableIndexError(str(error) or "the index is damaged") from error


def _check_path(path: bytes, length: int, *, is_directory: bool, is_alone: bool) -> None:
    """Refuse a path that is not one of a file in the worktree."""
    if length != min(len(path), _LONGEST_NAME):
        # Git goes by the length, and finds the next entry elsewhere.
        raise UnreadableIndexError("the length of an entry is not that of its path")
    if is_directory and is_alone:
        # A sparse index keeps a whole directory, and what is linked in it, as one entry.
        raise UnreadableIndexError("the index keeps whole directories as one entry")
    # An entry that replaces one of another index has no path of its own.
    if path and _UNSAFE.search(b"/" + (path.removesuffix(b"/") if is_directory else path)):
        raise UnreadableIndexError("the index names a file that no worktree may hold")


def _path(index: bytes, start: int, at: int, before: bytes | None) -> tuple[bytes, int, bool]:
    """Return the path of an entry, where the next one begins, and whether the path stands whole.

    Args:
        index: the content of the file.
        start: where the entry begins.
        at: where its path begins.
        before: the path of the entry before, in a version that leaves out what both share.
    """
    if before is None:
        end = index.index(0, at)
        # Padded with one to eight zero bytes, so that the length is a multiple of eight.
        return index[at:end], start + _padded(end - start), True
    dropped, at = _varint(index, at)
    if dropped > len(before):
        raise UnreadableIndexError("an entry drops more than the path before it has")
    end = index.index(0, at)
    return before[: len(before) - dropped] + index[at:end], end + 1, dropped == len(before)


def _padded(length: int) -> int:
    return (length + 8) // 8 * 8


def _written(entries: Sequence[tuple[EntryKey, _Entry]], hash_length: int) -> bytes:
    """Return an index of version 2, or 3 where an entry has extended flags."""
    version = 3 if any(entry.flags & _EXTENDED for _, entry in entries) else _PLAIN
    parts = [struct.pack(">4sII", b"DIRC", version, len(entries))]
    for (path, _), entry in entries:
        flags = entry.flags | min(len(path), _LONGEST_NAME)
        extended = struct.pack(">H", entry.extended) if entry.flags & _EXTENDED else b""
        text = b"".join([entry.fixed, entry.name, struct.pack(">H", flags), extended, path])
        parts.append(text.ljust(_padded(len(text)), b"\0"))
    content = b"".join(parts)
    return content + _digest(content, hash_length)


def _digest(content: bytes | bytearray, hash_length: int) -> bytes:
    name = "sha1" if hash_length == _SHA1 else "sha256"
    return hashlib.new(name, content, usedforsecurity=False).digest()


def _varint(index: bytes, place: int) -> tuple[int, int]:
    """Decode git's offset encoding. Return the value, and where it ends."""
    (byte,) = struct.unpack_from(">B", index, place)
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        (byte,) = struct.unpack_from(">B", index, place)
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, place + 1


def _check_rest(
    index: bytes, end: int, before_hash: bytes, starts: Sequence[int], *, is_alone: bool
) -> None:
    """Refuse extensions that make git read other entries than those that stand in the index.

    With `index.threads` git looks for its entries where two extensions say that they begin.
    """
    place, hash_length = end, len(index) - len(before_hash)
    while place + 8 <= len(before_hash):
        name, length = struct.unpack_from(">4sI", before_hash, place)
        if name == b"link" and is_alone:
            raise UnreadableIndexError("the index is split over several files")
        if name == b"IEOT":
            _check_offsets(before_hash[place + 8 : place + 8 + length], starts)
        place += 8 + length
    last = before_hash[-(12 + hash_length) :]
    if place != len(before_hash) or (
        last.startswith(b"EOIE") and last[8:12] != end.to_bytes(4, "big")
    ):
        raise UnreadableIndexError("the extensions of the index are damaged")


def _check_offsets(table: bytes, starts: Sequence[int]) -> None:
    """Refuse a table of blocks of entries that are not the entries in their order."""
    (version,), at = struct.unpack_from(">I", table), 0
    for offset, count in struct.iter_unpack(">II", table[4:]):
        if at >= len(starts) or starts[at] != offset:
            raise UnreadableIndexError("the index names other places for its entries")
        at += count
    if version != _OFFSETS_VERSION or at != len(starts):
        raise UnreadableIndexError("the index leaves out entries")


# --- git settings

_Setting: TypeAlias = tuple[str, str | None, str, str]
"""Section, subsection, key and value; for a line that is not understood, the key is the line."""

_SECTION: Final = lazy(r'\[([A-Za-z0-9-]+)(?: "([^"\\\n]*)")?\]', re.ASCII)
_LINE: Final = lazy(r"([A-Za-z][A-Za-z0-9-]*) ?= ?([^\"\\#;\0-\x1f]*)", re.ASCII)
_VALUES: Final[Mapping[str, re.Pattern[str]]] = {
    "any": lazy(r".*"),
    "flag": lazy(r"true|false", re.ASCII),
    "number": lazy(r"[01]", re.ASCII),
    "word": lazy(r"[A-Za-z0-9][A-Za-z0-9._/@+ -]*"),
    "remote": lazy(r"\.|[A-Za-z0-9][A-Za-z0-9._/@+ -]*"),
    "references": lazy(r"\+?refs/[A-Za-z0-9._/*-]+:refs/[A-Za-z0-9._/*-]+", re.ASCII),
    "url": lazy(r"(?!-)(?!.*::).+"),
    "worktree": lazy(r"(?:\.\./)+[A-Za-z0-9._/-]+", re.ASCII),
}
"""What the value of a setting may be, by the names of `names.toml`."""
_PLACE: Final = ("core", "worktree")


def is_harmless(before: bytes | None, now: bytes) -> bool:
    """Return whether every new setting of a configuration is harmless.

    Args:
        before: the earlier content, or None if there was no file.
        now: the present content.
    """
    if now == before:
        return True
    text = _text(now)
    if text is None or "\\\n" in text:
        return False
    known = set(_settings(_text(before or b"") or ""))
    sections = {(section, name) for section, name, _, _ in known}
    remotes = {name for section, name in sections if section == "remote"}
    return all(
        setting in known
        or (
            _is_harmless(setting, is_new=setting[:2] not in sections)
            and (before is None or _leaves_as_is(setting, remotes))
        )
        for setting in _settings(text)
    )


def _leaves_as_is(setting: _Setting, remotes: Collection[str | None]) -> bool:
    """Return whether git works, and pushes, as it did in a repository that was there before.

    A branch names its remote, and without that git takes `origin`, or the only one that there is.
    """
    section, name, key, value = setting
    if (section, key) == ("branch", "remote"):
        return value == "." or value in remotes
    if section == "remote":
        return bool(remotes) and name != "origin"
    # Without `core.filemode`, for one, git shows no program that became one.
    return section in {"branch", "submodule", "user"}


def other_settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, key and text of each setting that is not known to run nothing."""
    known = read_names().settings
    for section, _, key, value in _settings(text):
        # Without a section it is no configuration.
        if section and f"{section}.{key}" not in {**known["always"], **known["if_new"]}:
            yield section, key, value or key


def keeps_worktree(repository: str, before: bytes | None, now: bytes) -> bool:
    """Return whether a configuration names no new worktree but that of a submodule.

    Any other could be the home directory, where a checkout writes. `repository`: its directory of
    git, absolute.
    """
    found = worktrees(now)
    if found <= worktrees(before or b""):
        return True
    owner, modules, _ = repository.partition("/.git/modules/")
    return bool(modules) and all(
        posixpath.normpath(f"{repository}/{one}").startswith(f"{owner}/") for one in found
    )


def worktrees(content: bytes) -> frozenset[str]:
    """Return the worktrees that a configuration names, relative to its directory."""
    found = _settings(_text(content) or "")
    return frozenset([value for section, _, key, value in found if (section, key) == _PLACE])


def _is_harmless(setting: _Setting, *, is_new: bool) -> bool:
    section, name, key, value = setting
    known = read_names().settings
    table = known["always"] if name is None else known["if_new"] if is_new else {}
    kind = table.get(f"{section}.{key}")
    return kind is not None and _VALUES[kind].fullmatch(value) is not None


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _settings(text: str) -> Iterator[_Setting]:
    section: str = ""
    name: str | None = None
    for raw in text.split("\n"):
        line = raw.strip(" \t\r")
        if not line or line[0] in "#;":
            continue
        if (header := _SECTION.fullmatch(line)) is not None:
            section, name = header[1].lower(), header[2]
        elif (found := _LINE.fullmatch(line)) is not None:
            yield section, name, found[1].lower(), found[2].strip()
        else:
            # Also a header with something behind it: what follows belongs to nothing we know.
            section, name = f"{section}\0", None
            yield section, name, line, ""
