"""What the proxy hands to the process of our own shell, in a sealed file in memory.

The user's credentials: what a sandbox hides of them, and what of it an approval opens.

Theory of operation: the table of `credentials` says where a home directory holds keys and tokens.
What is there when a sandbox starts is hidden: a directory behind an empty one, a file behind an
empty file, so that `npm` and `curl` go on without it. A file in a directory that also holds other
things, such as `~/.cargo/credentials.toml`, is hidden with its directory, of which the rest is
shown: a file that a program replaces by renaming would lose its cover. A place that appears later
has no cover; `restrictions` finds it
in the mounts of the running process, and calls are no longer contained.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from ironcurtain_proxy.credentials import CredentialPlace
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, lazy
from ironcurtain_proxy.sandbox.private_tmp import PrivateTmp
from ironcurtain_proxy.sandbox.profile import Hidden, SandboxProfile, is_in

# --- hidden credentials


_SHARED: Final = frozenset(
    {"", ".config", ".local", ".local/share", ".local/state", ".cache", "Library"}
)
"""Directories of the home that many programs keep things in: these stay as they are."""
_COPY: Final = (
    r"(?:~|[._-](?:bak|backup|old|orig|original|save|saved|copy|prev|previous|new|tmp|rpmsave"
    r"|dpkg-old|sw[op]|[0-9]{1,14})[._~-]?[0-9_.-]{0,20})"
)
"""The endings that people, editors and packages give to copies."""
_ENDING: Final = lazy(rf"{_COPY}\Z", re.IGNORECASE)
_MOST_SHOWN: Final = 100
"""The most entries that are shown of a hidden directory; each costs a mount."""


FoundPlaces: TypeAlias = Sequence[tuple[CredentialPlace | None, str]]
"""Places with their paths."""


def present(places: FoundPlaces) -> FoundPlaces:
    """Return the places that exist now, and copies beside them, with their real paths."""
    found = [(place, real) for place, path in places if (real := _real(path))]
    return [*found, *[(None, real) for path in _copies(places) if (real := _real(path))]]


def _copies(places: FoundPlaces) -> Iterator[str]:
    """Yield what has the name of a place with the ending of a copy, in the same directory."""
    names: dict[str, list[str]] = {}
    for _, path in places:
        directory, _, name = path.rpartition("/")
        names.setdefault(directory, []).append(re.escape(name))
    for directory, those in names.items():
        # Most directories are not there, and most of the others hold nothing with such an ending:
        # the names of a place are made an expression for the few that do.
        with suppress(OSError):
            ends = [one for one in os.listdir(directory) if _ENDING.search(one)]  # noqa: PTH208  names
            if ends:
                copy = re.compile(rf"(?:{'|'.join(those)}){_COPY}", re.IGNORECASE)
                yield from [f"{directory}/{one}" for one in ends if copy.fullmatch(one)]


def hidden_in(home: str, there: FoundPlaces, needed: Sequence[str] = ()) -> Hidden:
    """Return what a sandbox that starts now hides.

    Args:
        home: the home directory, real.
        there: the places that exist; see `present`.
        needed: paths that the server's entry names, such as its program, and the workspace. They
            stay readable, and so does a place that the server's program lies in.
    """
    closed: dict[str, None] = {}
    whole: list[str] = []
    shown: dict[str, None] = {}
    lent: dict[str, dict[str, None]] = {}
    secret = {real for _, real in there}
    for place, real in there:
        if any(is_in(one, real) for one in needed):
            continue
        around = _around(real, home)
        if around is None or (beside := _beside(around, secret)) is None:
            closed[real] = None
            whole.append(real)
        else:
            closed[around] = None
            shown.update(dict.fromkeys(beside))
        for program in () if place is None else place.programs:
            lent.setdefault(program, {})[real] = None
    return Hidden(
        closed=tuple(closed),
        shown=tuple([path for path in shown if path not in closed and not is_in(path, *whole)]),
        lent={program: tuple(paths) for program, paths in lent.items()},
    )


def _real(path: str) -> str | None:
    """Return the place of what a path leads to.

    It is None if there is nothing, or a whole file system.
    """
    if not os.path.lexists(path):
        return None
    real = os.path.realpath(path)
    return real if os.path.lexists(real) and real.count("/") > 1 else None


def _around(real: str, home: str) -> str | None:
    """Return the directory to hide with a file, or None if the path itself is hidden."""
    above = os.path.dirname(real)  # noqa: PTH120  text alone
    inside = above.startswith(home.rstrip("/") + "/")
    if not inside or above[len(home) :].strip("/") in _SHARED:
        return None
    return above


def _beside(directory: str, secret: set[str]) -> list[str] | None:
    """Return what a hidden directory shows, or None if too much, or it cannot be listed."""
    try:
        names = os.listdir(directory)  # noqa: PTH208  names are enough
    except OSError:
        return None
    found = [f"{directory}/{name}" for name in names]
    if len(found) > _MOST_SHOWN:
        return None
    # A link is not followed: it could lead to what is hidden elsewhere.
    return [one for one in found if one not in secret and os.path.realpath(one) == one]


class Credentials(Struct, frozen=True):
    """Every place of the table on this machine that a sandbox hides, whether it exists or not."""

    by_directory: Mapping[str, frozenset[str]]
    """The names to look for, by their directory."""

    @classmethod
    def of(cls, places: FoundPlaces, needed: Sequence[str]) -> "Credentials":
        """Return the places, without those that hold what is needed; see `hidden_in`."""
        found: dict[str, set[str]] = {}
        for _, path in places:
            if not any(is_in(one, path) for one in needed):
                directory, _, name = path.rpartition("/")
                found.setdefault(directory, set()).add(name)
        return cls({directory: frozenset(names) for directory, names in found.items()})

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Return a value that changes if a place appears, is replaced or goes.

        This runs before every contained call.
        """
        return tuple(map(_stamp, self.by_directory))

    def existing(self) -> Iterable[str]:
        """Return the places that exist now, links by what they lead to."""
        for directory, names in self.by_directory.items():
            for name in sorted(names):
                real = _real(f"{directory}/{name}")
                if real is not None:
                    yield real


def _stamp(directory: str) -> tuple[int, int]:
    try:
        status = os.stat(directory)  # noqa: PTH116  one call of the kernel
    except OSError:
        return (0, 0)
    return (status.st_ino, status.st_mtime_ns)


# --- shell setup


META: Final = "ironcurtain/view"
"""The key of a result's `_meta` that is for the proxy alone."""


class Views(Struct, frozen=True, kw_only=True):
    """Where the commands of our own shell have their views."""

    directory: str
    """The directory of the session's views; empty: commands run as the shell's process does, which
    has restrictions of its own or none."""
    workspace: str
    approved: tuple[str, ...] = ()
    """Control places that these commands may change, relative to the workspace."""
    names: str = ""
    """The file of the hidden names that a person has approved; see `settled_names`."""
    wire: str = ""
    """The socket at which a command of a client's own shell is fetched; empty: the arguments of a
    call are all of it."""


class ShellSetup(Struct, frozen=True, kw_only=True):
    """How commands are run."""

    views: Views
    profile: SandboxProfile = SandboxProfile()
    private: PrivateTmp | None = None
    srt: tuple[str, ...] = ()
    """Runs srt, for commands that may reach hosts."""
    credentials: Credentials | None = None
    """The user's credentials that stay hidden, also what appears while the shell runs."""
    lent: tuple[str, ...] = ()
    """The mounts of what an approval opens outside the workspace, as arguments of bubblewrap."""


class ClientCommand(Struct, frozen=True, kw_only=True):
    """A command of a client's own shell, as the kernel hands it to the process that runs it.

    The three standard descriptors come beside it.
    """

    shell: str
    """The shell of the client, absolute."""
    text: bytes
    """What that shell is told to run: the judged command, in the client's own words around it."""
    directory_file: bytes
    """The file in the text into which the shell writes its last directory."""
    variables: list[bytes]
    """The environment, each `NAME=VALUE`."""


class ClientCommandEnd(Struct, frozen=True, kw_only=True):
    """How such a command ended."""

    status: int
    """The exit status, or -1 if nobody knows, or it could not be started."""
    directory: bytes = b""
    """The last directory of its shell, or empty if it did not say."""


def call_digest(arguments: Mapping[str, Json]) -> str:
    """Return what the command of an authorized call is fetched by: its arguments, as judged."""
    return hashlib.sha256(msgspec.json.encode(arguments, order="sorted")).hexdigest()


class ViewReport(Struct, frozen=True, kw_only=True):
    """What the proxy learns of a command beside its output."""

    view: str = ""
    """The name of the view whose changes are prepared, or empty if there are none."""
    refused_host: str = ""
    """The first host that the command tried to reach, or empty if there is none."""


def encoded(setup: ShellSetup) -> bytes:
    """Return a setup as `read_setup` reads it."""
    return msgspec.json.encode(setup)


def with_report(result: ToolResult) -> tuple[ToolResult, str]:
    """Return an answer of our own shell as the agent may see it, and the host that was refused."""
    meta = None if result.result is None else result.result.get("_meta")
    said = meta.get(META) if isinstance(meta, Mapping) else None
    if result.result is None or not isinstance(meta, Mapping) or said is None:
        return result, ""
    report = msgspec.convert(said, ViewReport)
    rest = {name: value for name, value in meta.items() if name != META}
    answer = {name: value for name, value in result.result.items() if name != "_meta"}
    if rest:
        answer["_meta"] = rest
    return ToolResult(result=answer, view=report.view), report.refused_host


def read_setup(descriptor: int) -> ShellSetup:
    """Read the setup from a descriptor.

    Raises:
        OSError, msgspec.MsgspecError: it cannot be read.
    """
    content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
    return msgspec.json.decode(content, type=ShellSetup)


def plain(workspace: str | None) -> ShellSetup:
    """Return the setup of a process that has its restrictions around itself, or none."""
    place = workspace or os.getcwd()  # noqa: PTH109  a string is wanted
    return ShellSetup(views=Views(directory="", workspace=place))
