"""Our own shell, which `init` offers where a client has a server that runs commands.

Not a command itself. Our own shell is a server that no client can start: it goes into the proxy's
own file, and the client's file only names it in the filter of the proxy's entry. By itself `init`
takes nothing away, so a `--yes` puts it beside what is there.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.init_servers import settings_for
from ironcurtain_proxy.config.annotating.annotate import packed
from ironcurtain_proxy.config.annotating.known import roles_in
from ironcurtain_proxy.config.clients.plan import MovingServer, collides
from ironcurtain_proxy.config.packs.pack import read_pack
from ironcurtain_proxy.config.servers.recognition import recognised_pack
from ironcurtain_proxy.config.servers.servers_file import OWN_SHELL
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.own_shell.tools import TOOLS

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.read_tool import ReadServer

OwnShellWish: TypeAlias = Literal["beside", "instead", "none"]
WISHES: Final[tuple[OwnShellWish, ...]] = ("beside", "instead", "none")

ENTRY: Final[Mapping[str, Json]] = {"builtin": "shell"}
_REASON: Final = (
    "Our own shell gives each command a view of the workspace, and brings in what it changed only "
    "once the command has ended and all of it was looked at."
)
_WIDTH: Final = 96


class FoundShell(Struct, frozen=True):
    """A server that runs commands."""

    name: str
    """Behind the proxy."""
    does_more: bool
    """Whether it has other tools, which our own shell could not replace."""


class OwnShell(Struct, frozen=True):
    """Our own shell behind the proxy."""

    name: str
    serves: Mapping[str, tuple[str, ...]]
    """The servers that a client gets for one that it had."""
    replaced: frozenset[str]
    """The servers in whose place it stands."""
    is_new: bool

    def read(self) -> "ReadServer":
        """Return its tools. They are our own, so that nothing is started to read them."""
        pack = read_pack(OWN_SHELL)
        assert pack is not None  # noqa: S101  it comes with the package
        return packed(self.name, TOOLS, pack)


def shells_read(servers: Sequence["ReadServer"], names: Collection[str]) -> list[FoundShell]:
    """Return which servers of these names run commands, by the tools that they listed."""
    return [
        FoundShell(one.name, bool(one.left_out) or any(tool.kind != "shell" for tool in one.tools))
        for one in servers
        if one.name in names and any(tool.kind == "shell" for tool in one.tools)
    ]


def shells_known(moving: Sequence[MovingServer]) -> list[FoundShell]:
    """Return which servers run commands, by their packs: nothing is started to find out."""
    found: dict[str, FoundShell] = {}
    for one in moving:
        command, args = one.taken.entry.get("command"), one.taken.entry.get("args")
        words = [str(word) for word in args] if isinstance(args, list) else []
        name = recognised_pack(command, words) if isinstance(command, str) else None
        pack = None if name is None else read_pack(name)
        runs = [_runs_commands(tool.get("args")) for tool in pack.tools.values()] if pack else []
        if any(runs):
            found[one.name] = FoundShell(one.name, does_more=not all(runs))
    return [*found.values()]


def _runs_commands(arguments: Json) -> bool:
    roles = arguments.values() if isinstance(arguments, dict) else ()
    return any("command" in roles_in(one) for one in roles)


def offered(
    talk: Dialogue, wish: OwnShellWish | None, shells: Sequence[FoundShell], workspace: Path
) -> OwnShellWish:
    """Ask whether our own shell stands beside the servers that run commands, or in their place.

    Args:
        talk: with the person.
        wish: as the command line says; None: the person is asked where there is such a server.
        shells: the servers that run commands.
        workspace: must be one that can have views.
    """
    if wish == "none" or (wish is None and not shells):
        return "none"
    if why := _why_not(workspace):
        talk.say(f"\nour own shell is left out: {clean(why, 300)}")
        return "none"
    return wish or _answered(talk, shells)


def said(shells: Sequence[FoundShell]) -> str:
    """Return in words that servers run commands."""
    names = ", ".join(clean(one.name) for one in shells)
    return f"{names} {'run' if len(shells) > 1 else 'runs'} commands"


def _answered(talk: Dialogue, shells: Sequence[FoundShell]) -> OwnShellWish:
    names = ", ".join(clean(one.name) for one in shells)
    place = _replaceable(shells)
    talk.say()
    for line in wrap(f"{said(shells)}. {_REASON}", _WIDTH):
        talk.say(line)
    if not place:
        question = f"Put our own shell beside {names}? (y: beside, n: not at all)"
        return "beside" if talk.ask(question) == "y" else "none"
    instead = ", ".join(clean(name) for name in sorted(place))
    question = f"Put it beside (b), or in place of {instead} (i), or leave it out (n)?"
    match talk.ask(question, ("b", "i", "n")):
        case "b":
            return "beside"
        case "i":
            return "instead"
        case _:
            return "none"


def own_shell(
    wish: OwnShellWish,
    shells: Sequence[FoundShell],
    moved: Collection[str],
    present: Mapping[str, Mapping[str, Json]],
) -> OwnShell | None:
    """Return our own shell with a name that no other server has; None: it is not wished.

    Args:
        wish: what was chosen.
        shells: the servers that run commands. Where there is none, every client gets our own.
        moved: the servers that move behind the proxy.
        present: the servers that are behind it already.
    """
    if wish == "none":
        return None
    replaced = _replaceable(shells) if wish == "instead" else frozenset()
    there = next((name for name, one in present.items() if one.get("builtin") == "shell"), None)
    taken = ({*moved} - replaced) | present.keys()
    numbered = (f"{OWN_SHELL}-{number}" for number in count(2))
    names = chain(("shell", OWN_SHELL), numbered)
    name = there or next(
        name for name in names if not any(collides(name, other) for other in taken)
    )
    beside = [one.name for one in shells] or sorted(moved)
    serves = {one: (name,) if one in replaced else (one, name) for one in beside}
    return OwnShell(name, serves, replaced, is_new=there is None)


def with_own_shell(
    entries: Mapping[str, Json], own: OwnShell, present: Collection[str]
) -> dict[str, Json]:
    """Return the servers behind the proxy with our own shell among them.

    What it replaces goes, unless another client uses it already.
    """
    kept = {
        name: one for name, one in entries.items() if name not in own.replaced or name in present
    }
    return kept | ({own.name: {**ENTRY}} if own.is_new else {})


def _replaceable(shells: Sequence[FoundShell]) -> frozenset[str]:
    return frozenset([one.name for one in shells if not one.does_more])


def _why_not(workspace: Path) -> str | None:
    """Return why commands could have no views of a workspace here, or None if they could."""
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.views import why_no_own_views  # noqa: PLC0415

    return why_no_own_views(settings_for({OWN_SHELL: ENTRY}, workspace), os.environ)
