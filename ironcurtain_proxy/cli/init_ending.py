"""The end of `init`: logins, checks, and which servers are protected or not, and why.

Not a command itself. A server that stays in a client's file runs past the proxy, whatever else was
set up: the last thing that a person reads must not say otherwise.
"""

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Final

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.init_servers import read_servers
from ironcurtain_proxy.cli.init_wants import Failure
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.clients.entries import SWITCHED_OFF
from ironcurtain_proxy.config.clients.finding import ClientFile, FoundClients
from ironcurtain_proxy.config.clients.plan import MovingServer
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.values import Json, list_of, object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.texts import ReadServer

_NOT_CHOSEN: Final = Failure(why="you left its file out", remedy="run init again")


class Unprotected(Struct, frozen=True, kw_only=True):
    """A server that stays in a client's file."""

    name: str
    file: ClientFile
    failure: Failure


class Outcome(Struct):
    """What has become of the servers of all clients so far."""

    found: FoundClients
    failures: dict[str, Failure] = field(default_factory=dict)
    """By the name behind the proxy: the server did not start, or cannot be reached."""
    refused: dict[int, Failure] = field(default_factory=dict)
    """By the identity of a client's file that cannot be changed."""

    def unprotected(
        self, moving: Sequence[MovingServer], changed: Collection[int]
    ) -> list[Unprotected]:
        """Return the servers that stay, in the order of the files.

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


class InitEnding(Struct, frozen=True):
    """What was done in the end."""

    changed: Sequence[ClientFile] = ()
    unconfined: Mapping[str, str] = field(default_factory=dict)
    """Why a server runs in no sandbox."""
    own_shell: str = ""
    """The name of our own shell, or empty if there is none."""
    replaced: Collection[str] = ()
    """The servers in whose place it stands."""


def say_ending(
    talk: Dialogue, outcome: Outcome, moving: Sequence[MovingServer], ending: InitEnding
) -> None:
    """Print how many servers are protected, which are not, and what to do next."""
    left = outcome.unprotected(moving, {id(one) for one in ending.changed})
    before = sum(len(table.ours) > 0 for file in outcome.found.files for table in file.tables)
    failed = {(id(one.file), one.name) for one in left}
    names = [one.name for one in moving if (id(one.file), one.taken.name) not in failed]
    if _lacks_sandbox(talk.answer.get("doctor")):
        ending = replace(ending, unconfined={one: "" for one in (*names, ending.own_shell) if one})
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
    inside: Sequence[str], left: Sequence[Unprotected], ending: InitEnding, *, is_first: bool
) -> Iterator[str]:
    total = len(inside) + len(left)
    what = "server" if is_first else "added server"
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
        where = f"in place of {place}" if place else "beside them"
        yield f"Our own shell stands {where}, as {ending.own_shell}."
    running = [*inside, ending.own_shell]
    bare = [
        one for one in dict.fromkeys(running) if one in {*ending.unconfined} - {*ending.replaced}
    ]
    if bare:
        yield f"Held by the policy alone, in no sandbox: {', '.join(map(clean, bare))}."
    clients = ", ".join(dict.fromkeys(one.client.name for one in ending.changed))
    if inside and clients:
        whose = " to the protected servers" if left else ""
        yield f"Restart {clients}: from then on every tool call{whose} passes the proxy."
    if inside:
        yield ("Run `ironcurtain-proxy review` in a terminal: it asks you what the policy leaves "
               "open. (`ironcurtain-proxy init --undo` takes everything back.)")  # fmt: skip


def _lacks_sandbox(doctor: Json) -> bool:
    """Return whether `doctor` found that no sandbox starts on this machine."""
    found = map(object_of, list_of(doctor))
    return any(one.get("name") == "sandbox" and one.get("state") != "ok" for one in found)


def _all(total: int, what: str) -> str:
    return f"All {total} {what}s are" if total > 1 else f"The {what} is"


# --- logins ---------------------------------------------------------------------------------------
# Servers over HTTP that want a login before they list their tools.
def wanting_login(settings: Settings, servers: "Sequence[ReadServer]") -> list[str]:
    """Return the names of the servers that did not answer because nobody has logged in to them."""
    browsing = {
        spec.name
        for spec in settings.servers
        if spec.remote is not None
        and not spec.remote.has_authorization
        and (spec.remote.oauth is None or spec.remote.oauth.grant == "browser")
    }
    return [one.name for one in servers if one.name in browsing and _is_login(one.error)]


def with_logins(
    talk: Dialogue, settings: Settings, servers: "Sequence[ReadServer]", seconds: float
) -> "list[ReadServer]":
    """Return the servers. Those to which the person has now logged in are read again.

    With `--yes` nobody sits before a browser: the logins are left for later.
    """
    done: list[str] = []
    for name in [] if talk.yes else wanting_login(settings, servers):
        if talk.ask(f"{clean(name)} wants a login: open its page in your browser now?") == "y":
            done += [name] if _logged_in(talk, settings, name) else []
    if not done:
        return [*servers]
    again = tuple([spec for spec in settings.servers if spec.name in done])
    read = {one.name: one for one in read_servers(replace(settings, servers=again), seconds)}
    return [read.get(one.name, one) for one in servers]


def _logged_in(talk: Dialogue, settings: Settings, name: str) -> bool:
    # Joins the SDK: half a second to import, and an extra's.
    from ironcurtain_proxy.cli.login import (  # noqa: PLC0415
        logged_in,
        server_of,
    )

    try:
        logged_in(server_of(settings, name), opens_browser=True)
    except IronCurtainError as error:
        talk.say(f"{clean(name)}: {clean(str(error), 300)}")
        return False
    return True


def _is_login(error: str) -> bool:
    return "login" in error or "401" in error


# --- checks at the end ----------------------------------------------------------------------------
# The checks after `init`.
_MOST: Final = 6
_PLAIN: Final = re.compile(r"[\w@./=<>~^ -]+", re.ASCII)
"""A command without quotes, so that its words can stand in another one."""
_SEVERAL: Final = ("sudo apt-get install -y ", "npm install -g ", "pip install ")
"""Commands that take several packages."""
_ONE: Final = ("uv tool install ", "pipx install ", "uv sync ", "npx --yes ")
"""Commands that take one package."""


def look_after(
    talk: Dialogue,
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    installs: Collection[str] = (),
) -> bool:
    """Run `doctor` and `check --live`, and print a summary. Return False if there are errors.

    Both read the configuration from the files, as a client's proxy will.

    Args:
        talk: with the person.
        secrets: credentials by server, which the client will fill in.
        installs: commands that install servers, so that a sandbox can hold them.
    """
    # Slow to import, and not needed before: `init` asks its questions first.
    from ironcurtain_proxy.cli import check as check_command  # noqa: PLC0415
    from ironcurtain_proxy.cli import doctor as doctor_command  # noqa: PLC0415

    given = orjson.dumps({**(secrets or {})}).decode()
    doctor = _answer(doctor_command.run, given)
    check = _answer(check_command.run, given, live=True, seconds=None)
    results = doctor if isinstance(doctor, list) else []
    open_points = [one for one in results if isinstance(one, dict) and one.get("state") != "ok"]
    talk.say()
    found = f"{counted(len(open_points), 'point')} open" if open_points else "all is well"
    talk.say(f"doctor: {found}")
    for one in open_points[:_MOST]:
        remedy = f": {one.get('remedy')}" if one.get("remedy") else ""
        talk.say(f"  {one.get('name')}: {clean(str(one.get('found')) + remedy, 600)}")
    if len(open_points) > _MOST:
        talk.say("  … `ironcurtain-proxy doctor` shows the rest")
    problems = list_of(object_of(check).get("problems"))
    listed = [one for one in problems if isinstance(one, dict)]
    errors = [one for one in listed if one.get("severity") == "error"]
    is_right = isinstance(check, dict) and not errors
    numbers = f"{counted(len(errors), 'error')}, {counted(len(listed) - len(errors), 'warning')}"
    hint = "" if len(listed) == len(errors) else " (`ironcurtain-proxy check --live` shows them)"
    talk.say(f"check --live: {numbers + hint if isinstance(check, dict) else 'did not end'}")
    for one in errors[:_MOST]:
        talk.say(f"  {clean(str(one.get('message')), 300)}")
    commands = joined([*[str(one.get("remedy")) for one in open_points], *installs])
    if commands:
        talk.say("\nto run servers in sandboxes, install what is missing:")
        for command in commands:
            talk.say(f"  {clean(command, 500)}")
    talk.answer |= {"doctor": doctor, "check": check, "install": [*commands]}
    return is_right


def joined(commands: Iterable[str]) -> list[str]:
    """Join commands of one program that installs several packages at once.

    Other texts are left out.
    """
    found: dict[str, dict[str, None]] = {}
    alone: dict[str, None] = {}
    for said in commands:
        command, _, note = said.partition(" (")
        start = next((one for one in (*_SEVERAL, *_ONE) if command.startswith(one)), None)
        if start in _SEVERAL and not note and _PLAIN.fullmatch(command):
            found.setdefault(start, {}).update(dict.fromkeys(command.removeprefix(start).split()))
        elif start is not None:
            alone[command + (f"  # {note.removesuffix(')')}" if note else "")] = None
    return [*[start + " ".join(words) for start, words in found.items()], *alone]


def _answer(
    command: Callable[[argparse.Namespace], int], credentials: str, **options: object
) -> Json:
    """Return the JSON output of a command, or None if the command could not run."""
    # A command takes its secrets out of the environment, so that no child inherits them.
    os.environ.setdefault("SERVER_CREDENTIALS", credentials)
    given = {"config": None, "dir": None, "json": True, **options}
    printed = StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(StringIO()):
            command(argparse.Namespace(**given))
        found: Json = orjson.loads(printed.getvalue())
        return found
    except (IronCurtainError, orjson.JSONDecodeError):
        return None
