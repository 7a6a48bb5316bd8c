"""Files that steer git or an agent, and that a rollback may bring back.

A point may hold a hook that a process had just written, before it was found and taken away. So the
files that a rollback brings back are checked like those that a call leaves behind. A file stays if
it can make nothing run, or if it was there before the first call of a session.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import ControlFile, RemovedFiles, read_index
from ironcurtain_proxy.snapshots.history import Tree

_NOT_SEEN: Final = "hooks and settings that the rollback brings back are not looked after"


@contextmanager
def looking_after(
    workspace: RealPath, state: Path, say: Callable[[str], None], starts: Collection[Tree]
) -> Iterator[None]:
    """Remove and report restored files that steer git or an agent.

    Args:
        workspace: what is rolled back.
        state: the proxy's own directory, which keeps what is taken away.
        say: is told each.
        starts: the workspace as it was when sessions began.
    """
    try:
        lookout = ControlLookout(
            (str(workspace),),
            RemovedFiles(state / "put-back"),
            is_known=lambda path, item: _was_there(path, item, str(workspace), starts),
            own_places=(str(state.resolve()),),
        )
    except OSError as error:
        say(f"{_NOT_SEEN}: {error.strerror}")
        yield
        return
    try:
        lookout.begin()
        if lookout.unseen:
            say(f"{_NOT_SEEN}: {lookout.unseen}")
        yield
    finally:
        for one in lookout.look():
            say(one.full)
        lookout.close()


def _was_there(path: str, item: ControlFile, workspace: str, starts: Collection[Tree]) -> bool:
    content = item.content
    if content is None and path.endswith("/index"):
        # The content of an index of git is not kept by a look.
        index = read_index(path)
        content = None if index is None else index.content
    if content is None:
        return False
    if item.is_link:
        kind, said = "link", os.fsdecode(content)
    else:
        kind, said = "file", hashlib.sha256(content).hexdigest()
    found = [tree.get(path.removeprefix(f"{workspace}/")) for tree in starts]
    return any(one is not None and (one.kind, one.content) == (kind, said) for one in found)
