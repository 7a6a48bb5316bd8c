"""The snapshot's own repository: a work tree as one commit, and its files read back.

It is bare, nothing but us writes it, and no configuration but ours is in it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from ironcurtain_proxy.snapshots.contents import DIGEST, Extent, Streaming
from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.git_commands import GitError, GitPlace, git, git_into
from ironcurtain_proxy.snapshots.places import Parts
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, SnapshotTree

_EXECUTABLE: Final = 0o100
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./ ")


def import_commit(folder: Path, stream: IO[bytes], ref: str) -> str:
    """Make the repository out of a finished stream.

    Returns:
        The id of the commit, SHA-256.

    Raises:
        GitError: git did not do it.
    """
    place = GitPlace(git_dir=folder, is_own=True, variables={"GIT_DEFAULT_HASH": "sha256"})
    folder.mkdir(0o700)
    git(("init", "-q", "--bare", "--template=", "--object-format=sha256"), place)
    stream.flush()
    stream.seek(0)
    with TemporaryFile() as output:
        git_into(("fast-import", "--quiet", "--done"), place, stream, output)
    commit = git(("rev-parse", "--verify", "-q", ref), place).decode().strip()
    if DIGEST.fullmatch(commit) is None:
        raise GitError("git made no commit")
    return commit


def finish_stream(
    stream: IO[bytes], contents: Streaming, tree: SnapshotTree, top: Parts, ref: str, now: datetime
) -> None:
    """Write the commit after the contents. Empty directories are not in it."""
    kept = {path[len(top) :]: entry for path, entry in tree.items() if entry.kind != "directory"}
    links = {
        path: contents.add(os.fsencode(entry.content))
        for path, entry in kept.items()
        if entry.kind == "link"
    }
    message = b"The work tree with untracked files\n"
    stream.write(b"commit %s\n" % ref.encode())
    stream.write(b"committer ironcurtain-proxy <> %d +0000\n" % int(now.timestamp()))
    stream.write(b"data %d\n%s\n" % (len(message), message))
    for path, entry in kept.items():
        mark = links[path] if entry.kind == "link" else contents.marks[entry.content]
        stream.write(b"M %s :%d %s\n" % (_mode(entry), mark, _quoted(path)))
    stream.write(b"done\n")


def _mode(entry: SnapshotEntry) -> bytes:
    if entry.kind == "link":
        return b"120000"
    return b"100755" if entry.mode & _EXECUTABLE else b"100644"


def _quoted(path: Parts) -> bytes:
    raw = os.fsencode("/".join(path))
    return b'"%s"' % b"".join([bytes((b,)) if b in _SAFE else b"\\%03o" % b for b in raw])


@contextmanager
def fetched(folder: Path, digests: Sequence[str]) -> Iterator[Mapping[str, Extent]]:
    """Where contents out of the repository can be read while the block lasts.

    Raises:
        RollbackError: one of them is not there.
    """
    with TemporaryFile() as given, TemporaryFile(dir=folder.parent) as output:
        given.write("".join([f"{digest}\n" for digest in digests]).encode())
        given.seek(0)
        try:
            git_into(("cat-file", "--batch"), GitPlace(git_dir=folder, is_own=True), given, output)
        except GitError as error:
            raise RollbackError(f"what was held cannot be read: {error}") from None
        output.seek(0)
        yield {digest: _extent(output, digest) for digest in digests}


def _extent(output: IO[bytes], digest: str) -> Extent:
    fields = output.readline().decode().split()
    if fields[:2] != [digest, "blob"]:
        raise RollbackError("what was held is not there any more")
    extent = Extent(output.fileno(), output.tell(), int(fields[2]))
    output.seek(extent.size + 1, os.SEEK_CUR)
    return extent
