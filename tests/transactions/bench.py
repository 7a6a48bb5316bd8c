"""A workspace and commands in views of it, for tests."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from ironcurtain_proxy.transactions.changes import Changes, KeptBack
from ironcurtain_proxy.transactions.control import Control, LedPlaces
from ironcurtain_proxy.transactions.forking import mounting_by
from ironcurtain_proxy.transactions.transaction import (
    CommandView,
    Recovery,
    SessionViews,
    TakenBack,
    commit,
    discard,
)

Picture = dict[bytes, tuple[object, ...]]


@dataclass
class Workbench:
    """A workspace `ws`, whose views lie in `store`."""

    base: Path
    late: list[KeptBack] = field(default_factory=list)
    repositories: tuple[str, ...] = ()
    """The directories of git below the workspace that are known."""

    def __post_init__(self) -> None:
        self.ws = self.base / "ws"
        self.ws.mkdir(parents=True)
        self.store = self.base / "store"
        self.session = SessionViews(self.store)

    def write(self, path: str, content: str = "old", mode: int = 0o644) -> Path:
        file = self.ws / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(mode)
        return file

    def view(self, script: str) -> CommandView:
        """Run a shell script in a view; the view is not looked at yet."""
        known = [str(self.ws / one) for one in self.repositories]
        view = CommandView(self.session.directory, str(self.ws), known)
        words = view.arguments(["/bin/bash", "-c", script], 2)
        command = [*mounting_by(sys.executable), *words]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return view

    def run(
        self,
        script: str,
        *,
        approved: Collection[str] = (),
        led: LedPlaces = LedPlaces(),  # noqa: B008  frozen
        meanwhile: Callable[[], object] | None = None,
        last: Callable[[], object] | None = None,
    ) -> Changes:
        """Run a script and bring in what it changed.

        `meanwhile`: done before the changes are looked at. `last`: done before they come in.
        """
        view = self.view(script)
        try:
            if meanwhile is not None:
                meanwhile()
            found = view.prepare(Control(approved, led))
            if last is not None:
                last()
            self.late = [] if found.is_nothing else commit(view.directory)
        finally:
            view.close()
            discard(view.directory)
        return found

    def bring_in(self, view: CommandView) -> list[KeptBack]:
        """Bring in what a command in a view changed. Return what did not come in."""
        try:
            found = view.prepare(Control())
            late = [] if found.is_nothing else commit(view.directory)
        finally:
            view.close()
            discard(view.directory)
        return [*found.conflicts, *late]

    def picture(self) -> Picture:
        """Everything in the workspace, byte for byte."""
        found: Picture = {}
        for path in self.ws.rglob("*"):
            status = path.lstat()
            what: tuple[object, ...] = (status.st_mode,)
            if stat.S_ISLNK(status.st_mode):
                what = (*what, str(path.readlink()))
            elif stat.S_ISREG(status.st_mode):
                what = (*what, status.st_mtime_ns, path.read_bytes())
            found[os.fsencode(path.relative_to(self.ws))] = what
        return found


def recovered(store: Path, *, is_recorded: bool = True) -> list[TakenBack]:
    """What a start takes back. It is recorded at once, or the start is killed before."""
    recovery = Recovery(store)
    recovery.close(is_recorded=is_recorded)
    return recovery.found


def recover(store: Path) -> list[KeptBack]:
    """What a start could not take back."""
    return [left for one in recovered(store) for left in one.stays]


def said(notes: Collection[KeptBack]) -> list[str]:
    """The paths of notes."""
    return [os.fsdecode(one.path) for one in notes]


def steps(found: Changes) -> list[str]:
    """The steps, as `act path`."""
    return [f"{one.act} {os.fsdecode(one.path)}" for one in found.steps]


def names_in(directory: Path) -> list[str]:
    """The names in a directory, sorted."""
    return sorted(one.name for one in directory.iterdir())
