"""Containment, joined with its session: it settles calls in place of a reviewer.

A file in the session's directory says that the session's containment has ended. No confined server
sees the file. `ironcurtain-proxy containment resume` removes it, after a person has looked.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.credentials import keys
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import EndedFor
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.ports import Clock, Timeline
from ironcurtain_proxy.private_files import read_beginning, write_whole

if TYPE_CHECKING:
    from ironcurtain_proxy.snapshots.keeper import Limits
    from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline

TIMELINES: Final = "timeline"
"""The directory of all timelines, in that of the proxy's state."""
_LOGGER: Final = logging.getLogger(__name__)


def limits_of(settings: Settings) -> "Limits":
    """Return the limits of the timeline."""
    # Off unless switched on: most sessions start without the timeline.
    from ironcurtain_proxy.snapshots.keeper import Limits  # noqa: PLC0415

    told = settings.timeline
    own = (settings.state_dir, settings.audit.path, settings.mailbox_dir)
    left_out = [*own, *[settings.home / key for key in keys()]]
    named = [RealPath.from_text(os.path.abspath(path)) for path in left_out]  # noqa: PTH100
    return Limits(
        max_bytes=told.max_bytes,
        max_files=told.max_files,
        caches=told.caches,
        keep=timedelta(days=told.keep_days),
        # A link in such a place is left out, and what it leads to.
        left_out=frozenset([*named, *[real(path) for path in left_out]]),
    )


def workspace_timeline(settings: Settings, clock: Clock) -> "WorkspaceTimeline | None":
    """Return the timeline, which the caller runs and closes, or None without a workspace.

    A timeline that cannot be opened counts as missing: the log names the reason, and no call is
    contained.
    """
    if settings.workspace is None:
        return None
    from ironcurtain_proxy.snapshots.workspace_timeline import (  # noqa: PLC0415
        WorkspaceTimeline,
    )

    try:
        return WorkspaceTimeline(
            settings.state_dir / TIMELINES,
            settings.workspace,
            limits_of(settings),
            session=settings.session,
            now=clock.now,
        )
    except OSError as error:
        _LOGGER.warning("the workspace has no timeline: %s", error.strerror or error)
        return None


FILE_NAME: Final = "containment-ended.json"
_MOST_BYTES: Final = 1 << 16
_NOT_LOOKED_AFTER: Final = (
    "hooks and settings that a call leaves would not be found everywhere in the workspace"
)
_HOW: Final = "ironcurtain-proxy containment resume"


@dataclass(slots=True)
class SessionContainment:
    """The containment of one session. Implements `ports.Containment`."""

    workspace: RealPath
    directory: Path
    """The directory of the session."""
    _identity: tuple[int, int] | None = field(init=False)
    _why: str | None = field(default=None, init=False)
    """The reason of the end, if no file could keep it."""

    def __post_init__(self) -> None:
        self._identity = _identity(self.workspace)

    def ended(self, *, writes: bool) -> str | None:
        """Return why containment has ended, or None if it has not, or a person has looked."""
        if self._why is not None:
            return self._why
        found = read_ended(self.directory / FILE_NAME)
        return None if found is None or not (found.of_all or writes) else found.why

    def end(self, call: RequestId, why: str, ended_for: EndedFor) -> None:
        """End containment until a person has looked."""
        before = read_ended(self.directory / FILE_NAME)
        if before is not None and (before.of_all or ended_for != "all"):
            return
        _LOGGER.warning("containment has ended: %s; look at the files, and then run: %s", why, _HOW)
        said = {"call": call, "why": why.encode(errors="replace").decode()}
        content = orjson.dumps({**said, "of_all": ended_for == "all"})
        try:
            write_whole(self.directory / FILE_NAME, content)
        except OSError as error:
            # Without a file nobody can take it away: it has ended for this session.
            self._why = why
            _LOGGER.warning("containment cannot be resumed: %s", error)

    def is_same_workspace(self) -> bool:
        """Return whether the workspace is still the directory that it was at the start."""
        return self._identity is not None and _identity(self.workspace) == self._identity


class EndedContainment(Struct, frozen=True, kw_only=True):
    """A session whose containment has ended."""

    session: str
    call: str
    """The call after which it ended, or empty if it is unknown."""
    why: str
    of_all: bool = True
    """Whether it is so for our own shell, too, which writes in views."""
    file: Path


def containment_of(
    settings: Settings, directory: Path, timeline: Timeline | None, *, is_looked_after: bool
) -> SessionContainment | None:
    """Return the containment that the operator asked for.

    It is None if none was, or nothing can be held.

    Args:
        settings: what the operator said.
        directory: the session's.
        timeline: of the workspace, or None if there is none.
        is_looked_after: whether new files that act outside every sandbox are found wherever servers
            may write. If not, containment begins only when a person resumes it.
    """
    if not settings.containment.undo or settings.workspace is None or timeline is None:
        return None
    containment = SessionContainment(settings.workspace, directory)
    if not is_looked_after:
        containment.end(RequestId(""), _NOT_LOOKED_AFTER, "all")
    return containment


def sessions_ended(sessions: Path) -> Iterator[EndedContainment]:
    """Yield the sessions whose containment has ended.

    Args:
        sessions: the directory with one for each session.
    """
    for file in sorted(sessions.glob(f"*/{FILE_NAME}")):
        found = read_ended(file)
        if found is not None:
            yield found


def read_ended(file: Path) -> EndedContainment | None:
    """Return the end of a session's containment, or None if it has not ended."""
    try:
        raw = read_beginning(file, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(file, error.strerror or "unknown")
    with suppress(ValueError, KeyError, TypeError):
        fields = orjson.loads(raw)
        call, why, of_all = (
            str(fields["call"]),
            str(fields["why"]),
            fields.get("of_all") is not False,
        )
        name = file.parent.name
        return EndedContainment(session=name, call=call, why=why, of_all=of_all, file=file)
    return _unreadable(file, "not what was written")


def _unreadable(file: Path, why: str) -> EndedContainment:
    return EndedContainment(
        session=file.parent.name, call="", why=f"its file is unreadable: {why}", file=file
    )


def _identity(workspace: RealPath) -> tuple[int, int] | None:
    """Return the identity of the directory at a path.

    It is None if there is none, or a link leads to it.
    """
    text = str(workspace)
    with suppress(OSError):
        if os.path.realpath(text) == text:
            found = os.stat(text, follow_symlinks=False)  # noqa: PTH116  a link is none
            return found.st_dev, found.st_ino
    return None
