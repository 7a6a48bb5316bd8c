"""The checks after `init`. Not a command itself."""

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Final

import orjson

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.json import Json

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
    """Run `doctor` and `check --live`, and print a summary. False: there are errors.

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
        talk.say(f"  {one.get('name')}: {clean(str(one.get('found')) + remedy, 300)}")
    if len(open_points) > _MOST:
        talk.say("  … `ironcurtain-proxy doctor` shows the rest")
    problems = check.get("problems") if isinstance(check, dict) else None
    listed = (
        [one for one in problems if isinstance(one, dict)] if isinstance(problems, list) else []
    )
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
    """Commands that install something, of one program as one where it takes several packages.

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
    """The JSON output of a command; None: the command could not run."""
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
