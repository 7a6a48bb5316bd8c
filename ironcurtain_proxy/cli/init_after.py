"""What `init` looks at when everything is written. Not a command itself."""

import argparse
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Final

import orjson

from ironcurtain_proxy.cli.init_talk import Talk, clean
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.json import Json

_MOST: Final = 6


def look_after(talk: Talk) -> bool:
    """Run `doctor` and `check --live`, and say in short what they found. False: there are errors.

    Both read the configuration from the files, as a client's proxy will.
    """
    # Not before they are needed: `init` begins to ask long before.
    from ironcurtain_proxy.cli import check as check_command  # noqa: PLC0415
    from ironcurtain_proxy.cli import doctor as doctor_command  # noqa: PLC0415

    doctor = _answer(doctor_command.run)
    check = _answer(check_command.run, live=True, seconds=None)
    results = doctor if isinstance(doctor, list) else []
    open_points = [one for one in results if isinstance(one, dict) and one.get("state") != "ok"]
    talk.say()
    talk.say(
        "doctor: " + (_count(len(open_points), "point") + " open" if open_points else "all is well")
    )
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
    counted = f"{_count(len(errors), 'error')}, {_count(len(listed) - len(errors), 'warning')}"
    talk.say(f"check --live: {counted if isinstance(check, dict) else 'did not end'}")
    for one in errors[:_MOST]:
        talk.say(f"  {clean(str(one.get('message')), 300)}")
    talk.answer |= {"doctor": doctor, "check": check}
    return is_right


def _answer(command: Callable[[argparse.Namespace], int], **options: object) -> Json:
    """What a command prints with `--json`; None: it could not be carried out."""
    given = {"config": None, "dir": None, "json": True, **options}
    printed = StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(StringIO()):
            command(argparse.Namespace(**given))
        found: Json = orjson.loads(printed.getvalue())
        return found
    except (IronCurtainError, orjson.JSONDecodeError):
        return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
