"""Containment, joined with its session: it settles calls in place of a reviewer.

A file in the session's directory says that the session's containment has ended. No confined server
sees the file. `ironcurtain-proxy containment resume` removes it, after a person has looked.

`containment_report` finds the servers whose calls containment can settle without a start. The
conditions are those of a call. Two of them stay open, because only a call shows them: its own
effect, and the limits of the running process.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.approval.containment import why_open
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.credentials import keys
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.ports import Clock, Timeline
from ironcurtain_proxy.private_files import read_beginning, write_whole
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.snapshots.opening import beyond_bounds
from ironcurtain_proxy.wiring.confinement import confinements, keeps_own_place
from ironcurtain_proxy.wiring.proxy import settled
from ironcurtain_proxy.wiring.rehearsal import configured_restrictions

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

    def ended(self) -> str | None:
        """Return why containment has ended, or None if it has not, or a person has looked."""
        if self._why is not None:
            return self._why
        found = read_ended(self.directory / FILE_NAME)
        return None if found is None else found.why

    def end(self, call: RequestId, why: str) -> None:
        """End containment until a person has looked."""
        _LOGGER.warning("containment has ended: %s; look at the files, and then run: %s", why, _HOW)
        content = orjson.dumps({"call": call, "why": why.encode(errors="replace").decode()})
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
    if not is_looked_after and containment.ended() is None:
        containment.end(RequestId(""), _NOT_LOOKED_AFTER)
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
        return EndedContainment(
            session=file.parent.name, call=str(fields["call"]), why=str(fields["why"]), file=file
        )
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


# --- which servers can be contained

_NO_WORKSPACE: Final = "there is no workspace"


class UncontainedServers(Struct, frozen=True, kw_only=True):
    """Servers whose calls containment never settles, whatever they do."""

    servers: tuple[str, ...]
    """The servers; empty: all of them."""
    why: str
    remedy: str
    """What helps, or empty where nothing is wrong."""


class ContainmentReport(Struct, frozen=True, kw_only=True):
    """The effect of containment on the servers of a configuration."""

    held: tuple[str, ...]
    """Servers whose calls run unasked where they can be taken back."""
    asked: tuple[UncontainedServers, ...]

    def lines(self) -> Iterator[str]:
        """Yield the effect in lines for people."""
        if self.held:
            yield f"calls of {', '.join(self.held)} that can be taken back run unasked"
        for one in self.asked:
            whose = f"calls of {', '.join(one.servers)}" if one.servers else "calls"
            yield f"{whose} that the policy asks about need a reviewer: {one.why}"

    def as_json(self) -> Json:
        """Return the effect as JSON."""
        return {
            "held": [*self.held],
            "asked": [
                {"servers": [*one.servers], "why": one.why, "remedy": one.remedy}
                for one in self.asked
            ],
        }


def containment_report(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], sandbox: Available | None
) -> ContainmentReport | None:
    """Return the effect of containment.

    It is None if it is off, or a server's sandbox is not possible.

    Args:
        settings: the operator's settings.
        loaded: the policy.
        environ: the proxy's environment.
        sandbox: this machine's.
    """
    if not settings.containment.undo:
        return None
    if settings.workspace is None:
        return _nothing(_NO_WORKSPACE, "write allowedDirectory into the configuration")
    limits = limits_of(settings)
    beyond = beyond_bounds(
        str(settings.workspace),
        max_files=limits.max_files,
        max_bytes=limits.max_bytes,
        caches=limits.caches,
        state=str(settings.state_dir),
    )
    if beyond is not None:
        return _nothing(
            f"they could not be taken back: {beyond}",
            "name what need not be held in containment.caches, or raise containment.max_files "
            "and containment.max_bytes",
        )
    specs = settled(settings, environ, make=False)
    try:
        confined = confinements(sandbox, specs, settings, loaded.policy, make=False)
    except ConfigurationError:
        return None  # said as an error
    held: list[str] = []
    asked: dict[tuple[str, str], list[str]] = {}
    for spec in settings.servers:
        # No sandbox of this machine holds a remote server, and some servers have to write
        # elsewhere.
        if spec.remote is not None or keeps_own_place(spec):
            continue
        restrictions = configured_restrictions(spec, confined.get(spec.name))
        why = why_open(restrictions, settings.workspace)
        if why is None:
            held.append(spec.name)
        else:
            asked.setdefault((why, _remedy(restrictions)), []).append(spec.name)
    return ContainmentReport(
        held=tuple(held),
        asked=tuple(
            [
                UncontainedServers(servers=tuple(names), why=why, remedy=remedy)
                for (why, remedy), names in asked.items()
            ]
        ),
    )


def _nothing(why: str, remedy: str) -> ContainmentReport:
    return ContainmentReport(
        held=(), asked=(UncontainedServers(servers=(), why=why, remedy=remedy),)
    )


def _remedy(restrictions: SandboxRestrictions | None) -> str:
    if restrictions is None:
        return 'install what `doctor` names, and remove "sandbox": false where its entry has it'
    if not restrictions.is_offline:
        return ""  # its hosts were opened on purpose, by `init` for servers that work there
    return "remove sandbox.filesystem.allowWrite, and a cwd outside the workspace, from its entry"
