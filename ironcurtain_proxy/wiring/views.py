"""The views of our own shell: where they lie, and their commits."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.reply import NotTaken, ViewChanges
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.settled_names import SettledNames
from ironcurtain_proxy.sandbox.shell_setup import Views
from ironcurtain_proxy.transactions.availability import NoViews, store_for, why_no_views
from ironcurtain_proxy.transactions.changes import KeptBack
from ironcurtain_proxy.transactions.journal import read_prepared
from ironcurtain_proxy.transactions.transaction import (
    Recovery,
    SessionViews,
    commit,
    discard,
    take_back,
)
from ironcurtain_proxy.wiring.confinement import confined_servers

_LOGGER: Final = logging.getLogger(__name__)
VIEWS: Final = "views"
"""The directory of all views, in that of the proxy's state."""
_REMOVAL: Final = 0.2
"""Seconds that an answer waits for the removal of its view. The thread goes on after them, and what
is left when the session ends is removed by `close`."""
_BESIDE: Final = ".ironcurtain-views"
"""The same beside the workspace, where the state is on another file system."""


class ShellViews(Struct, frozen=True):
    """The views of one session. Implements `ports.PreparedViews`."""

    session: SessionViews
    servers: frozenset[str]
    recovery: Recovery

    def serves(self, server: str) -> bool:
        """Return whether the calls of a server have views."""
        return server in self.servers

    def files_among(self, paths: Sequence[RealPath]) -> list[RealPath]:
        """Return the paths at which there is a file now: no link, and no directory."""
        named = [(path, Path(str(path))) for path in paths]
        return [path for path, file in named if file.is_file() and not file.is_symlink()]

    async def changes(self, view: str) -> ViewChanges:
        """Return what is prepared in a view."""
        prepared = await anyio.to_thread.run_sync(read_prepared, self._place(view))
        found = prepared.changes
        return ViewChanges(
            paths=tuple([os.fsdecode(step.path) for step in found.steps]),
            kept_back=_told(found.kept_back),
            others=_told((*found.conflicts, *found.left_out)),
        )

    async def record_recovery(self, journal: Journal) -> None:
        """Record, once, what this start took back of commits that were cut off.

        Then all that is left of killed sessions is removed. It may be much: no call waits for it.
        """
        is_recorded = True
        for one in self.recovery.found:
            if not one.is_recorded:
                ground = Ground("commit-taken-back", str(one))
                is_recorded &= await journal.note_own("commit_taken_back", ground, one.as_json())
        remove = partial(self.recovery.close, is_recorded=is_recorded)
        await anyio.to_thread.run_sync(remove, abandon_on_cancel=True)

    def commit(self, view: str, call: str) -> tuple[NotTaken, ...]:
        """Bring the changes of a view into the workspace."""
        return _told(commit(self._place(view), call))

    def take_back(self, view: str) -> tuple[NotTaken, ...]:
        """Take out of the workspace what `commit` has brought in."""
        return _told(take_back(self._place(view)))

    async def end(self, view: str) -> None:
        """Remove a view. What takes longer, as 20,000 files do, is removed beside later calls."""
        with anyio.move_on_after(_REMOVAL):
            await anyio.to_thread.run_sync(discard, self._place(view), abandon_on_cancel=True)

    def close(self) -> None:
        """Remove all of them."""
        self.recovery.close(is_recorded=False)
        self.session.close()

    def _place(self, view: str) -> Path:
        if not view.isalnum():
            raise FileNotFoundError(0, "no view has such a name")
        return self.session.directory / view


def why_no_own_views(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return why commands of our own shell would have no views, or None if they would.

    For set-up and reports, without a session: a view is made, and removed again.
    """
    workspace = settings.workspace
    own = [spec.name for spec in settings.servers if spec.builtin == "shell"]
    confined = confined_servers(settings, environ, lambda _text: None)
    if workspace is None or not any(confined[name] for name in own):
        return "no sandbox of this machine can hold its commands"
    store = _store(settings, str(workspace))
    if isinstance(store, NoViews):
        return store.why
    session = _begun(store)
    if isinstance(session, NoViews):
        return session.why
    session.close()
    return None


def _begun(store: Path) -> SessionViews | NoViews:
    """Make the directory of a session in which a view can be made."""
    try:
        session = SessionViews(store)
    except OSError as error:
        return NoViews(error.strerror or "no directory can be made")
    if (why := why_no_views(session.directory)) is None:
        return session
    session.close()
    return NoViews(why)


def _store(settings: Settings, workspace: str) -> Path | NoViews:
    return store_for(workspace, [settings.state_dir / VIEWS, Path(workspace).parent / _BESIDE])


def with_views(
    confined: Mapping[str, Confinement], specs: Sequence[ServerSpec], settings: Settings
) -> tuple[Mapping[str, Confinement], ShellViews | None]:
    """Give the commands of our own shell views of their own.

    What a killed proxy left half committed is taken back first. Where this machine or workspace can
    have no views, the log says why, and the shell runs in a sandbox like other servers.
    """
    own = frozenset([one.name for one in specs if one.builtin == "shell" and one.name in confined])
    if not own or settings.workspace is None:
        return confined, None
    workspace = str(settings.workspace)
    store = _store(settings, workspace)
    if isinstance(store, NoViews):
        return _without(confined, store.why)
    recovery = Recovery(store)
    for each in recovery.found:
        _LOGGER.warning("%s", each)
    session = _begun(store)
    if isinstance(session, NoViews):
        recovery.close(is_recorded=False)
        return _without(confined, session.why)
    views = Views(
        directory=str(session.directory),
        workspace=workspace,
        names=str(SettledNames.of(settings.state_dir, workspace).file),
    )
    # No other server reaches what lies beside the workspace.
    hidden = (str(store),) if store.name == _BESIDE else ()
    found: dict[str, Confinement] = {}
    for name, one in confined.items():
        profile = replace(one.profile, deny_read=(*one.profile.deny_read, *hidden))
        found[name] = replace(one, profile=profile, views=views if name in own else None)
    return found, ShellViews(session, own, recovery)


def _without(
    confined: Mapping[str, Confinement], why: str
) -> tuple[Mapping[str, Confinement], None]:
    _LOGGER.warning(
        "commands of our own shell have no views of their own (%s): they run in one sandbox, like "
        "the commands of other servers",
        why,
    )
    return confined, None


def _told(notes: Sequence[KeptBack]) -> tuple[NotTaken, ...]:
    return tuple([NotTaken(os.fsdecode(one.path), one.why) for one in notes])
