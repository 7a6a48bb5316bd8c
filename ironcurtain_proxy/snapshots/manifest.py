"""What is written down of a snapshot, and how it is read back: believed only if all of it fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeGuard
from urllib.parse import quote_from_bytes, unquote_to_bytes

import orjson

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.snapshots.contents import DIGEST
from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.places import Parts, is_within, text_of
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, SnapshotEntryKind, SnapshotTree
from ironcurtain_proxy.strict_json import strict_json

VERSION: Final = 1
_PLAIN: Final = "/ !#$&'()*+,:;=?@[]{}~^"
"""Beside letters and digits, what is not written as `%2F`."""
_MODES: Final = 0o7777
_FIELDS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """Where a repository's history stands."""

    head: str
    """`refs/heads/main`, or the id of a commit if no branch is checked out."""
    heads: Mapping[str, str]
    """Branches and tags, such as `refs/heads/main`, with the id they stand for."""
    index: str
    """The digest of what the index says. Its bytes change even when somebody only looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRepository:
    """What was held of a repository beside its files."""

    top: Parts
    """Its work tree; `.git` is in it."""
    refs: Refs
    left_out: tuple[Parts, ...]
    """Directories that are ignored, and repositories within: neither held nor ever touched."""
    commit: str
    """The commit with the whole work tree, in the snapshot's own repository."""
    anchor: str
    """The commit in the repository itself that keeps its history and its index from being pruned.

    `refs/ironcurtain/<id>` names it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A snapshot."""

    id: str
    at: datetime
    """Aware, UTC."""
    roots: tuple[Parts, ...]
    """The places that are held with all below them; none within another, none is `/`."""
    before: SnapshotTree
    """What was there. A root that is not in it did not exist."""
    repository: HeldRepository | None = None

    def holds(self, path: Parts) -> bool:
        """Whether a path is in one of the roots."""
        return any(is_within(path, root) for root in self.roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterState:
    """What the call left; or, of a rollback, what it found."""

    tree: SnapshotTree
    refs: Refs | None = None


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    held = manifest.repository
    return orjson.dumps(
        {
            "version": VERSION,
            "id": manifest.id,
            "at": manifest.at.isoformat(),
            "roots": [_quoted(root) for root in manifest.roots],
            "before": _rows(manifest.before),
            "repository": None
            if held is None
            else {
                "top": _quoted(held.top),
                "refs": _refs_json(held.refs),
                "leftOut": [_quoted(path) for path in held.left_out],
                "commit": held.commit,
                "anchor": held.anchor,
            },
        }
    )


def after_bytes(after: AfterState) -> bytes:
    """The state as JSON."""
    refs = None if after.refs is None else _refs_json(after.refs)
    return orjson.dumps({"version": VERSION, "tree": _rows(after.tree), "refs": refs})


def read_manifest(raw: bytes) -> Manifest:
    """Read it back.

    Raises:
        RollbackError: it is not what we write.
    """
    fields = _object(_parsed(raw))
    roots = tuple([_unquoted(root) for root in _list(fields.get("roots"))])
    held = _repository(fields.get("repository"))
    if not all(roots) or (held is not None and not held.top):
        raise _damaged("a root")
    manifest = Manifest(
        id=_text(fields.get("id")),
        at=_time(fields.get("at")),
        roots=roots,
        before=_tree(fields.get("before"), held_only=True),
        repository=held,
    )
    tops = roots if held is None else (*roots, held.top)
    for path in manifest.before:
        top = next((top for top in tops if is_within(path, top)), None)
        if top is None:
            raise _damaged("a path outside")
        parent = manifest.before.get(path[:-1])
        if path not in tops and (parent is None or parent.kind != "directory"):
            raise _damaged("a path in no directory")
    return manifest


def read_after(raw: bytes) -> AfterState:
    """Read it back.

    Raises:
        RollbackError: it is not what we write.
    """
    fields = _object(_parsed(raw))
    refs = fields.get("refs")
    return AfterState(
        tree=_tree(fields.get("tree"), held_only=False),
        refs=None if refs is None else _refs(refs),
    )


def _quoted(path: Parts) -> str:
    return quote_from_bytes(text_of(path).encode(errors="surrogateescape"), safe=_PLAIN)


def _unquoted(value: Json) -> Parts:
    text = _text(value)
    raw = unquote_to_bytes(text)
    path = tuple(raw.decode(errors="surrogateescape").split("/")[1:])
    if path == ("",):
        path = ()
    if b"\0" in raw or any(part in ("", ".", "..") for part in path) or _quoted(path) != text:
        raise _damaged("a path")
    return path


def _rows(tree: SnapshotTree) -> list[Json]:
    return [
        [
            _quoted(path),
            entry.kind,
            entry.mode,
            entry.group,
            entry.modified_ns,
            entry.size,
            quote_from_bytes(entry.content.encode(errors="surrogateescape"), safe=_PLAIN),
        ]
        for path, entry in sorted(tree.items())
    ]


def _tree(value: Json, *, held_only: bool) -> SnapshotTree:
    tree: dict[Parts, SnapshotEntry] = {}
    for row in _list(value):
        fields = _list(row)
        if len(fields) != _FIELDS:
            raise _damaged("an entry")
        entry = _entry(fields)
        if held_only and not _can_be_held(entry):
            raise _damaged("an entry")
        tree[_unquoted(fields[0])] = entry
    return tree


def _entry(fields: list[Json]) -> SnapshotEntry:
    kind = fields[1]
    if not _is_kind(kind):
        raise _damaged("a kind")
    mode, group, modified_ns, size = [_whole(field) for field in fields[2:6]]
    content = unquote_to_bytes(_text(fields[6])).decode(errors="surrogateescape")
    if mode & ~_MODES or group < 0 or size < 0:
        raise _damaged("a number")
    return SnapshotEntry(
        kind=kind, mode=mode, group=group, modified_ns=modified_ns, size=size, content=content
    )


def _can_be_held(entry: SnapshotEntry) -> bool:
    match entry.kind:
        case "file":
            return DIGEST.fullmatch(entry.content) is not None
        case "directory":
            return not entry.content
        case "link":
            return bool(entry.content) and "\0" not in entry.content
        case "other":
            return False


def _is_kind(value: Json) -> TypeGuard[SnapshotEntryKind]:
    return value in ("file", "directory", "link", "other")


def _repository(value: Json) -> HeldRepository | None:
    if value is None:
        return None
    fields = _object(value)
    return HeldRepository(
        top=_unquoted(fields.get("top")),
        refs=_refs(fields.get("refs")),
        left_out=tuple([_unquoted(path) for path in _list(fields.get("leftOut"))]),
        commit=_text(fields.get("commit")),
        anchor=_text(fields.get("anchor")),
    )


def _refs_json(refs: Refs) -> dict[str, Json]:
    return {"head": refs.head, "heads": dict(refs.heads), "index": refs.index}


def _refs(value: Json) -> Refs:
    fields = _object(value)
    heads = {name: _text(target) for name, target in _object(fields.get("heads")).items()}
    return Refs(head=_text(fields.get("head")), heads=heads, index=_text(fields.get("index")))


def _parsed(raw: bytes) -> Json:
    try:
        value: Json = strict_json(raw)
    except orjson.JSONDecodeError:
        raise _damaged("its text") from None
    if _object(value).get("version") != VERSION:
        raise _damaged("its version")
    return value


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _damaged("an object")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise _damaged("a list")
    return value


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise _damaged("a text")
    return value


def _whole(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _damaged("a number")
    return value


def _time(value: Json) -> datetime:
    try:
        at = datetime.fromisoformat(_text(value))
    except ValueError:
        raise _damaged("a time") from None
    if at.tzinfo is None:
        raise _damaged("a time")
    return at


def _damaged(what: str) -> RollbackError:
    return RollbackError(
        f"the snapshot's manifest cannot be believed: {what} is not as we write it"
    )
