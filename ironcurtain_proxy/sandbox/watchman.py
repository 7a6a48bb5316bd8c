"""Checks of control files while confined servers run: after each call, and between calls.

`Watchman` implements `ports.Lookout` with `sandbox.lookout`, in threads. At its end a proxy checks
once more what its servers left. A killed proxy cannot. Files that a process of a call made in the
last moments would then count as the user's at the next start. So each proxy notes the state at its
start in its own directory, and removes the note at its end. The next start with the same
directories finds the note, and checks as the killed proxy would have done.

A note is locked while its proxy lives; the kernel releases the lock however the proxy dies. The
servers of the killed proxy can have made only what changed while it lived. The time of change tells
this, and only the kernel sets it.
"""

import fcntl
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.control_places.rules import may_steer
from ironcurtain_proxy.inotify import WRITTEN, InotifyQueue
from ironcurtain_proxy.model.reply import PutBack
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.private_files import make_private_directory
from ironcurtain_proxy.sandbox.launch import Confinement, watched
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.profile import is_in
from ironcurtain_proxy.sandbox.putting_back import (
    ClosedIdentity,
    ControlFile,
    RemovedFiles,
    inode_of,
)
from ironcurtain_proxy.sandbox.settled_names import SettledNames

# --- watch notes


NAME: Final = "watches"
"""The directory of notes in the state directory."""
BEAT: Final = 30.0
"""Seconds between two signs of life of a proxy."""
_LONGEST_SILENCE: Final = 120.0
"""Seconds after the last sign of life in which a killed proxy may have lived."""
_COARSE: Final = 2.0
"""Seconds to which a file system may round times."""
_LARGEST: Final = 16 << 20
_MOST: Final = 64
"""The most notes that are kept of directories that nobody starts in again."""
_SUFFIX: Final = ".watch"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _NotedFile(Struct, frozen=True):
    anchor: bytes
    """The directory that it belongs to, or empty if the path is absolute."""
    inner: bytes
    file: ControlFile


class _Content(Struct, frozen=True):
    began: float
    """Seconds since the epoch. What changed before is the user's."""
    roots: tuple[bytes, ...]
    files: tuple[_NotedFile, ...]
    settled: tuple[bytes, ...]
    closed: tuple[tuple[bytes, ClosedIdentity], ...]
    """What sandboxes closed, by its path."""
    led: tuple[bytes, ...] = ()
    """The paths that settings led to."""
    modules: dict[bytes, tuple[str, ...]] = {}
    """The names of modules that Python would take, by directory."""


class WatchNote(Struct, eq=False):
    """The note of a living proxy."""

    path: str
    _file: int

    @classmethod
    def write(cls, directory: Path, lookout: ControlLookout) -> "WatchNote":
        """Write the note, before any server starts.

        Args:
            directory: the directory of all notes.
            lookout: has begun, and closed what it closes.

        Raises:
            OSError: it cannot be written.
            ValueError: there is too much to be noted.
        """
        make_private_directory(directory)
        new = directory / f"{os.getpid()}-{os.urandom(6).hex()}"
        file = os.open(new, _NEW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kernel's clock gives all times that this one is compared with.
            text = _text(os.fstat(file).st_mtime - _COARSE, lookout)
            with os.fdopen(os.dup(file), "wb") as writer:
                writer.write(text)
            # A note is whole and locked from the moment it has its name.
            path = new.with_suffix(_SUFFIX)
            new.rename(path)
        except (OSError, ValueError):
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        return cls(str(path), file)

    def beat(self) -> None:
        """Show that the proxy lives."""
        with suppress(OSError):
            os.utime(self._file)

    def drop(self) -> None:
        """Remove the note after the proxy's last check."""
        with suppress(OSError):
            Path(self.path).unlink()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class AbandonedNote(Struct, frozen=True):
    """The note of a killed proxy."""

    path: str
    roots: tuple[str, ...]
    """The directories that still exist."""
    began: float
    until: float
    """The last second since the epoch in which the proxy can have lived."""
    content: _Content | None
    """None: it cannot be read."""

    def resume(self, lookout: ControlLookout) -> None:
        """Begin a watch with the noted state of what still exists."""
        if self.content is not None:
            for one in self.content.files:
                anchor = os.fsdecode(one.anchor)
                inode = inode_of(anchor) if anchor else (0, 0)
                if inode is not None:
                    lookout.known[inode, os.fsdecode(one.inner)] = one.file
                    if anchor:
                        lookout.places[inode] = anchor
            lookout.settled.update(map(os.fsdecode, self.content.settled))
            for path, identity in self.content.closed:
                lookout.closed_files[os.fsdecode(path)] = identity
            modules = {os.fsdecode(one): those for one, those in self.content.modules.items()}
            lookout.leads.know(map(os.fsdecode, self.content.led), modules)
        lookout.resume()

    def is_of_the_user(self, path: str, _file: ControlFile) -> bool:
        """Return whether a file has changed last when no server of the killed proxy ran."""
        try:
            changed = os.lstat(path).st_ctime
        except OSError:
            return False
        return not self.began <= changed <= self.until


def _text(began: float, lookout: ControlLookout) -> bytes:
    files = [
        _NotedFile(os.fsencode(lookout.places.get(inode, "")), os.fsencode(inner), file)
        for (inode, inner), file in lookout.known.items()
    ]
    closed = [(os.fsencode(path), one) for path, one in lookout.closed_files.items()]
    content = _Content(
        began,
        tuple(map(os.fsencode, lookout.roots)),
        tuple(files),
        tuple(map(os.fsencode, sorted(lookout.settled))),
        tuple(closed),
        tuple(map(os.fsencode, sorted(lookout.leads.paths))),
        {os.fsencode(one): (*those,) for one, those in lookout.leads.modules.names.items()},
    )
    text = msgspec.msgpack.encode(content)
    if len(text) > _LARGEST:
        raise ValueError("there is too much that steers git or an agent")
    return text


@contextmanager
def abandoned(directory: Path, roots: Sequence[str]) -> Iterator[tuple[AbandonedNote, ...]]:
    """Hold the notes of killed proxies whose servers could write in or around directories.

    They are locked meanwhile, and removed afterwards unless an error comes.

    Args:
        directory: of all notes.
        roots: absolute and real.
    """
    with ExitStack() as locks:
        found: list[AbandonedNote] = []
        left: list[str] = []
        for path in _paths(directory):
            file = _locked(path)
            if file is None:
                continue
            locks.callback(os.close, file)
            note = _read(path, file)
            overlaps = any(
                is_in(one, *roots) or is_in(root, one) for one in note.roots for root in roots
            )
            if overlaps or note.content is None:
                found.append(note)
            else:
                left.append(path)
        yield tuple(found)
        for path in [one.path for one in found] + left[:-_MOST]:
            with suppress(OSError):
                Path(path).unlink()


def _paths(directory: Path) -> list[str]:
    """Return the notes, the oldest first."""
    try:
        with os.scandir(directory) as entries:
            notes = [one for one in entries if one.name.endswith(_SUFFIX)]
            return [one.path for one in sorted(notes, key=lambda one: one.stat().st_mtime)]
    except OSError:
        return []


def _locked(path: str) -> int | None:
    """Return an abandoned note, opened, or None if its proxy lives, or somebody else handles it."""
    with ExitStack() as undo, suppress(OSError):
        file = os.open(path, _OPEN)
        undo.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.lstat(path)):
            undo.pop_all()
            return file
    return None


def _read(path: str, file: int) -> AbandonedNote:
    until = os.fstat(file).st_mtime + _LONGEST_SILENCE
    try:
        with os.fdopen(os.dup(file), "rb") as reader:
            content = msgspec.msgpack.decode(reader.read(_LARGEST + 1), type=_Content)
    except (OSError, ValueError, RecursionError):
        return AbandonedNote(path, (), 0.0, until, None)
    roots = tuple([root for one in content.roots if _is_there(root := os.fsdecode(one))])
    return AbandonedNote(path, roots, content.began, until, content)


def _names_below(place: str, paths: Collection[str]) -> frozenset[str]:
    """Return the names in a directory that lead to some paths."""
    top = f"{place}/"
    return frozenset([path[len(top) :].split("/")[0] for path in paths if path.startswith(top)])


def _is_there(root: str) -> bool:
    return os.path.isdir(root) and os.path.realpath(root) == root  # noqa: PTH112  text


# --- watchman


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


class Watchman(Struct):
    """Checks after each call, and between calls after each event."""

    lookout: ControlLookout
    note: WatchNote | None = None
    """For the next start, if this proxy is killed."""
    on_race: Callable[[str], None] | None = None
    """Ends all processes of the servers that write at once; gets the reason, where what is put back
    comes again and again while calls are under way."""
    _said: set[str] = field(default_factory=set)
    _opened: list["Watchman"] = field(default_factory=list)
    """The watches over what second instances may write besides."""
    _late: list[PutBack] = field(default_factory=list)
    """The findings of the last looks of ended watches."""

    @property
    def is_complete(self) -> bool:
        """Whether everything is watched."""
        return not self.lookout.unseen

    async def look(self, *, is_last: bool) -> tuple[PutBack, ...]:
        """Return the files restored since the last check. Never fails."""
        found, self._late = self._late, []
        for one in (self, *self._opened) if self.lookout.roots else self._opened:
            found += await one.find(partial(one.lookout.look, is_last=is_last))
        self._say(tuple(found))
        if not is_last:
            self._end_races(found)
        return tuple(found)

    @contextmanager
    def allowing(self, paths: Collection[str], *, by_person: bool) -> Iterator[None]:
        """Let a call change some files of which it names the paths."""
        # Of two calls at a time to the same file each has its own mark.
        marks = [(one, object()) for one in paths]
        self.lookout.allowed.update({mark: path for path, mark in marks})
        self.lookout.approved.update(paths if by_person else ())
        try:
            yield
        finally:
            for _, mark in marks:
                self.lookout.allowed.pop(mark, None)

    def opened(self, places: Collection[str], approved: Collection[str]) -> "Watchman":
        """Begin to look after what is opened for a second instance, until the watch is ended.

        What is there is not closed: a person may have approved that all of it is deleted. What
        comes beside it is another program's: the instance has a private directory in each place.

        Args:
            places: the directories that hold what was approved.
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
            open_names={place: _names_below(place, approved) for place in places},
            names=main.names,
            own_places=main.own_places,
        )
        lookout.allowed.update({one: one for one in approved})
        lookout.approved.update(approved)
        lookout.begin()
        # A person may have approved that all of it is deleted.
        lookout.guards = ()
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
        pause, silence = _QUIET, _UNASKED
        while self.lookout.roots:
            with anyio.move_on_after(silence):
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
            found = await self.find(self.lookout.look_for_later)
            self._say(found)
            self._end_races(found)
            # A look at a large workspace takes a twentieth of the time at most.
            pause = max(_QUIET, 20 * (anyio.current_time() - begun))
            if self.on_race is not None and any(one.acts for one in found):
                # What races the look is ended soon.
                pause = _QUIET
            with anyio.move_on_after(pause) as rest:
                await self._until_steered(2 * (anyio.current_time() - begun))
            # The event has been read: the next look waits for no other one.
            silence = max(_UNASKED, pause) if rest.cancelled_caught else 0

    async def _until_steered(self, rest: float) -> None:
        """Rest, and wait for an event in whose place something may act: a pause would be a race."""
        await anyio.sleep(rest)
        while (inotify := self.lookout.inotify) is not None:
            await anyio.wait_readable(inotify.descriptor)
            events = [*inotify.events()]
            if any(may_steer(name, is_written=bool(mask & WRITTEN)) for _, mask, name in events):
                return
        await anyio.sleep_forever()

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

    def _end_races(self, found: Collection[PutBack]) -> None:
        raced = [one.said for one in found if one.ends == "writers"]
        if raced and self.on_race is not None:
            self.on_race(raced[0])

    async def find(self, look: Callable[[], tuple[PutBack, ...]]) -> tuple[PutBack, ...]:
        """Check this place alone."""
        try:
            return await anyio.to_thread.run_sync(look)
        except (OSError, ValueError) as error:
            _LOGGER.warning("files that steer git were not looked after: %s", error)
            # What was not looked at is not contained.
            return (PutBack(f"what was left could not be looked at: {error}", ends="all"),)

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
        # A command in a view changes at once only what an approval opens for it.
        return (Watchman(_watch((), state_dir)) if confined else None), confined
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
    closed = lookout.closed()
    if lookout.unseen:
        _LOGGER.warning("%s, so that no call is contained", lookout.unseen)
    # What a command in a view changes is judged before it comes in: kept back, said, asked about.
    return Watchman(lookout, _noted(notes, lookout)), {
        name: replace(one, profile=one.profile.without_writing(closed))
        if one.views is None
        else one
        for name, one in confined.items()
    }


def _begun(roots: tuple[str, ...], state_dir: Path) -> ControlLookout:
    """Return a watch that takes all present files for the user's own.

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


def _listening() -> InotifyQueue | None:
    """Return a queue of events; None: there are no more, and the time alone says when to look."""
    with suppress(OSError):
        return InotifyQueue()
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
    """Return the directories that servers may write to besides their own, without nested ones."""
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
