"""Checks of steering files while confined servers run: after each call, and between calls.

Implements `ports.Lookout` with `sandbox.lookout`, in threads.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ironcurtain_proxy.model.reply import PutBack
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.inotify import Inotify
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import ControlFile, RemovedFiles
from ironcurtain_proxy.sandbox.settled_names import SettledNames
from ironcurtain_proxy.sandbox.watch_notes import (
    BEAT,
    NAME,
    AbandonedNote,
    WatchNote,
    abandoned,
)

_LOGGER: Final = logging.getLogger(__name__)
_MOST_SAID: Final = 20
"""Lines on standard error; the audit log has them all."""
_YOURS: Final = (
    "while servers run, new files that steer git or an agent are put back, whoever wrote them: "
    "move your own to their place before you start the proxy"
)
_KILLED: Final = (
    "a proxy was killed while its servers could write here; files that appeared meanwhile and that "
    "steer git or an agent are put back: move your own to their place before you start the proxy"
)
_TORN: Final = (
    "a proxy was killed, and its note of the files that steer git or an agent cannot be read: look "
    "at the hooks and settings in your workspaces"
)
_LOOKS: Final = 5
"""The most looks at what a killed proxy left."""
_QUIET: Final = 0.2
"""Seconds between two looks that no call asks for."""
_UNASKED: Final = 2.0
"""Seconds until a look that neither a call nor an event asks for."""


@dataclass(slots=True)
class Watchman:
    """Checks after each call, and between calls after each event."""

    lookout: ControlLookout
    note: WatchNote | None = None
    """For the next start, if this proxy is killed."""
    _said: set[str] = field(default_factory=set, init=False)
    _opened: list["Watchman"] = field(default_factory=list, init=False)
    """The watches over what second instances may write besides."""
    _late: list[PutBack] = field(default_factory=list, init=False)
    """The findings of the last looks of ended watches."""

    @property
    def is_complete(self) -> bool:
        """Whether everything is watched."""
        return not self.lookout.unseen

    async def look(self) -> tuple[PutBack, ...]:
        """Return the files restored since the last check. Never fails."""
        found, self._late = self._late, []
        for one in (self, *self._opened):
            found += await one.find(later=False)
        self._say(tuple(found))
        return tuple(found)

    @contextmanager
    def allowing(self, paths: Collection[str]) -> Iterator[None]:
        """Let a call change some files that somebody has seen the paths of."""
        # Of two calls at a time to the same file each has its own mark.
        marks = [(one, object()) for one in paths]
        self.lookout.allowed.update({mark: path for path, mark in marks})
        try:
            yield
        finally:
            for _, mark in marks:
                self.lookout.allowed.pop(mark, None)

    def opened(
        self, places: Mapping[str, frozenset[str]], approved: Collection[str] = ()
    ) -> "Watchman":
        """Begin to look after what is opened for a second instance, until the watch is ended.

        What is there is not closed: a person may have approved that all of it is deleted.

        Args:
            places: the directories, and the names in each that stay closed.
            approved: the paths that a person has approved.

        Raises:
            OSError: not all of it can be watched.
        """
        main = self.lookout
        watched = [RealPath.from_text(one) for one in places]
        outermost = [
            str(one)
            for one in watched
            if not any(one != other and one.is_within(other) for other in watched)
        ]
        lookout = ControlLookout(
            tuple(outermost),
            main.keeper,
            _listening(),
            closed_names=places,
            names=main.names,
            own_places=main.own_places,
        )
        lookout.allowed.update({one: one for one in approved})
        lookout.begin()
        if lookout.unseen:
            lookout.close()
            raise OSError(lookout.unseen)
        watch = Watchman(lookout)
        watch._said = self._said
        self._opened.append(watch)
        return watch

    def ended(self, watch: "Watchman") -> None:
        """End the watch over what was opened, when its second instance has ended."""
        self._opened.remove(watch)
        self._late += watch.end()

    async def run(self) -> None:
        """Check until cancelled: after each event, and from time to time.

        A write through a memory mapping, or under another name, causes no event.
        """
        beaten = anyio.current_time()
        pause = _QUIET
        while True:
            with anyio.move_on_after(max(_UNASKED, pause)):
                inotify = self.lookout.inotify
                if inotify is None:
                    await anyio.sleep_forever()
                else:
                    await anyio.wait_readable(inotify.descriptor)
                    inotify.names()
            if self.note is not None and anyio.current_time() - beaten >= BEAT:
                self.note.beat()
                beaten = anyio.current_time()
            begun = anyio.current_time()
            self._say(await self.find(later=True))
            # A look at a large workspace takes a twentieth of the time at most.
            pause = max(_QUIET, 20 * (anyio.current_time() - begun))
            await anyio.sleep(pause)

    def end(self) -> tuple[PutBack, ...]:
        """Check once more after the servers' end: processes of a call may write until then."""
        found: tuple[PutBack, ...] = ()
        try:
            found = self.lookout.look()
            self._say(found)
        except (OSError, ValueError) as error:
            # The note stays, so that the next start looks.
            _LOGGER.warning("files that steer git were not looked after: %s", error)
        else:
            if self.note is not None:
                self.note.drop()
        self.lookout.close()
        return found

    async def find(self, *, later: bool) -> tuple[PutBack, ...]:
        """Check this place alone; `later`: the next check reports the findings again."""
        look = self.lookout.look_for_later if later else self.lookout.look
        try:
            return await anyio.to_thread.run_sync(look)
        except (OSError, ValueError) as error:
            _LOGGER.warning("files that steer git were not looked after: %s", error)
            # What was not looked at is not contained.
            return () if later else (PutBack(f"what was left could not be looked at: {error}"),)

    def _say(self, found: tuple[PutBack, ...]) -> None:
        for text in [one.full for one in found]:
            if text in self._said:
                continue
            if not self._said:
                _LOGGER.warning("%s", _YOURS)
            if len(self._said) < _MOST_SAID:
                _LOGGER.warning("%s", text, extra={"most": _MOST_SAID})
            elif len(self._said) == _MOST_SAID:
                _LOGGER.warning("more was put back: see putBack in the audit log")
            self._said.add(text)


def watched(confined: Mapping[str, Confinement]) -> Mapping[str, Confinement]:
    """Return the confinements in which files of the workspace are changed at once.

    A command in a view changes nothing until the proxy brings it in.
    """
    return {name: one for name, one in confined.items() if one.views is None}


def looked_after(
    confined: Mapping[str, Confinement], state_dir: Path
) -> tuple[Watchman | None, Mapping[str, Confinement]]:
    """Begin to look after the places where confined servers may write.

    Args:
        confined: the servers' confinements.
        state_dir: the proxy's own. A server writes only in its own directory below it. Files that
            are put back are kept there.

    Returns:
        The watch, or None if there is nothing to watch; and the confinements, which now also close
        the present steering files.
    """
    roots = _roots(watched(confined), state_dir)
    if not roots:
        return None, confined
    notes = state_dir / NAME
    try:
        lookout = _begun(roots, state_dir)
        with abandoned(notes, roots) as left:
            # Again, because a file that came between two looks would count as the user's.
            for _ in range(_LOOKS):
                if not left or not _say_late(left, [_late(one, state_dir) for one in left]):
                    break
                lookout.close()
                lookout = _begun(roots, state_dir)
    except OSError as error:
        _LOGGER.warning("files that steer git are not looked after: %s", error.strerror)
        return None, confined
    if lookout.unseen:
        _LOGGER.warning("%s, so that no call is contained", lookout.unseen)
    closed = lookout.closed()
    return Watchman(lookout, _noted(notes, lookout)), {
        name: replace(one, profile=one.profile.without_writing(closed))
        for name, one in confined.items()
    }


def _begun(roots: tuple[str, ...], state_dir: Path) -> ControlLookout:
    """A watch that takes all present files for the user's own.

    Raises:
        OSError: nothing can be watched.
    """
    lookout = _watch(roots, state_dir)
    lookout.begin()
    return lookout


def _watch(
    roots: tuple[str, ...],
    state_dir: Path,
    is_known: Callable[[str, ControlFile], bool] = lambda _path, _file: False,
) -> ControlLookout:
    return ControlLookout(
        roots,
        RemovedFiles(state_dir / "put-back"),
        _listening(),
        is_known=is_known,
        names={root: SettledNames.of(state_dir, root) for root in roots},
        own_places=(os.path.realpath(state_dir),),
    )


def _listening() -> Inotify | None:
    """Return a queue of events; None: there are no more, and the time alone says when to look."""
    with suppress(OSError):
        return Inotify()
    return None


def _noted(notes: Path, lookout: ControlLookout) -> WatchNote | None:
    try:
        return WatchNote.write(notes, lookout)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        _LOGGER.warning(
            "if this proxy is killed, hooks and settings that its servers leave are not found at "
            "the next start: %s",
            why,
        )
        return None


def _late(note: AbandonedNote, state_dir: Path) -> tuple[PutBack, ...]:
    """Put back what the servers of a killed proxy left. Returns what it was."""
    lookout = _watch(note.roots, state_dir, note.is_of_the_user)
    try:
        note.resume(lookout)
        return lookout.look()
    finally:
        lookout.close()


def _say_late(notes: Sequence[AbandonedNote], found: Sequence[tuple[PutBack, ...]]) -> bool:
    """Report the files that were put back. Returns whether there were any."""
    if not all(one.content is not None for one in notes):
        _LOGGER.warning("%s", _TORN)
    late = [one for each in found for one in each]
    if late:
        _LOGGER.warning("%s", _KILLED)
    for one in late:
        _LOGGER.warning("%s", one.full)
    return bool(late)


def _roots(confined: Mapping[str, Confinement], state_dir: Path) -> tuple[str, ...]:
    """The directories that servers may write to besides their own, without nested ones."""
    state = RealPath.from_text(str(state_dir))
    found = {
        RealPath.from_text(path)
        for one in confined.values()
        for path in one.profile.allow_write
        if path != "/"
    }
    outside = [path for path in found if not path.is_within(state) and Path(str(path)).is_dir()]
    return tuple(
        sorted(
            str(path)
            for path in outside
            if not any(path != other and path.is_within(other) for other in outside)
        )
    )
