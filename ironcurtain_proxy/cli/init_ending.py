"""The end of `init`: how many servers are protected, and which are not, each with the reason.

Not a command itself. A server that stays in a client's file runs past the proxy, whatever else was
set up: the last thing that a person reads must not say otherwise.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.init_wants import Failure
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.clients.entries import SWITCHED_OFF
from ironcurtain_proxy.config.clients.finding import ClientFile, FoundClients
from ironcurtain_proxy.config.clients.plan import MovingServer

_NOT_CHOSEN: Final = Failure(why="you left its file out", remedy="run init again")
_NOT_WRITTEN: Final = Failure(why="its file was not changed", remedy="see above")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected:
    """A server that stays in a client's file."""

    name: str
    file: ClientFile
    failure: Failure


@dataclass(slots=True)
class Outcome:
    """What has become of the servers of all clients so far."""

    found: FoundClients
    failures: dict[str, Failure] = field(default_factory=dict)
    """By the name behind the proxy: the server did not start, or cannot be reached."""
    refused: dict[int, Failure] = field(default_factory=dict)
    """By the identity of a client's file that cannot be changed."""

    def unprotected(
        self, moving: Sequence[MovingServer], changed: Collection[int]
    ) -> list[Unprotected]:
        """The servers that stay, in the order of the files.

        Args:
            moving: every server that could move, with its name behind the proxy.
            changed: the identities of the files that were changed.
        """
        found: list[Unprotected] = []
        for file in self.found.files:
            for table in file.tables:
                for one in table.left:
                    if one.why != SWITCHED_OFF:
                        remedy = "docs/clients.md says what can be done"
                        failure = Failure(why=one.why, remedy=remedy)
                        found.append(Unprotected(name=one.name, file=file, failure=failure))
            for server in moving:
                if server.file is file and (failed := self._failure(server, changed)) is not None:
                    name = server.taken.name
                    found.append(Unprotected(name=name, file=file, failure=failed))
        return found

    def _failure(self, server: MovingServer, changed: Collection[int]) -> Failure | None:
        key = id(server.file)
        if server.name in self.failures:
            return self.failures[server.name]
        if key in self.refused:
            return self.refused[key]
        return None if key in changed else _NOT_CHOSEN


@dataclass(frozen=True, slots=True)
class InitEnding:
    """What was done in the end."""

    changed: Sequence[ClientFile] = ()
    unconfined: Mapping[str, str] = field(default_factory=dict)
    """Why a server runs in no sandbox."""
    own_shell: str = ""
    """The name of our own shell; empty: there is none."""
    replaced: Collection[str] = ()
    """The servers in whose place it stands."""


def say_ending(
    talk: Dialogue, outcome: Outcome, moving: Sequence[MovingServer], ending: InitEnding
) -> None:
    """Print how many servers are protected, which are not, and what to do next."""
    left = outcome.unprotected(moving, {id(one) for one in ending.changed})
    before = sum(len(table.ours) > 0 for file in outcome.found.files for table in file.tables)
    failed = {(id(one.file), one.name) for one in left}
    inside = [one for one in moving if (id(one.file), one.taken.name) not in failed]
    names = [one.name for one in inside if one.name not in ending.replaced]
    names += [ending.own_shell] if ending.own_shell else []
    if ending.own_shell:
        talk.answer["ownShell"] = {
            "name": ending.own_shell,
            "inPlaceOf": [*sorted(ending.replaced)],
        }
    talk.answer |= {
        "protected": len(names),
        "notProtected": [
            {
                "name": one.name,
                "client": one.file.client.id,
                "file": str(one.file.path),
                "why": one.failure.why,
                "next": one.failure.remedy,
            }
            for one in left
        ],
    }
    for line in _lines(names, left, ending, is_first=not before):
        talk.say(line)


def _lines(
    inside: Sequence[str],
    left: Sequence[Unprotected],
    ending: InitEnding,
    *,
    is_first: bool,
) -> Iterator[str]:
    total = len(inside) + len(left)
    what = "server" if is_first else "further server"
    yield ""
    if not left:
        yield f"{_all(total, what)} protected."
    else:
        yield f"{len(inside)} of {counted(total, what)} protected. NOT protected:"
        for one in left:
            yield f"  {clean(one.name)} ({one.file.client.name}): {clean(one.failure.why, 300)}"
            yield f"    next: {clean(one.failure.remedy, 300)}"
        yield "What these servers do, the proxy neither sees nor holds."
    if ending.own_shell:
        place = ", ".join(clean(name) for name in sorted(ending.replaced))
        instead = f", in place of {place}" if place else ""
        yield f"Among them is our own shell, as {ending.own_shell}{instead}."
    bare = dict.fromkeys(name for name in inside if name in ending.unconfined)
    if bare:
        names = ", ".join(clean(name) for name in bare)
        yield f"Held by the policy alone, in no sandbox: {names}."
    clients = ", ".join(dict.fromkeys(one.client.name for one in ending.changed))
    if inside and clients:
        whose = " to the protected servers" if left else ""
        yield f"Restart {clients}: from then on every tool call{whose} passes the proxy."
    yield ("Run `ironcurtain-proxy review` in a terminal: it asks you what the policy leaves open. "
           "(`ironcurtain-proxy init --undo` takes everything back.)")  # fmt: skip


def _all(total: int, what: str) -> str:
    return f"All {total} {what}s are" if total > 1 else f"The {what} is"
