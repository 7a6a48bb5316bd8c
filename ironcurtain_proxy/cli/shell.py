"""`ironcurtain-proxy shell`: the effect of a command, and the commands that an approval covers."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.cli.output import answer_lines, complain, say, say_line
from ironcurtain_proxy.facts.commands import has_repository, strays_among
from ironcurtain_proxy.facts.pushes import shows_credentials
from ironcurtain_proxy.model.request import CommandPlace, ParsedCommand
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.shell.effects import CommandEffect, Part, effect_of
from ironcurtain_proxy.shell.families import families_of, sought
from ironcurtain_proxy.shell.statements import parse_command

_UNREAD: Final[dict[str, Json]] = {
    "effect": "unknown",
    "reason": 'the line has no "command"',
    "parts": [],
    "families": [],
    "targets": [],
}
"""The answer to a line that cannot be read."""


def run(options: argparse.Namespace) -> int:
    """Describe one command, or the command in each line of the input."""
    place = place_at(options.workspace or Path.cwd())
    if options.jsonl:
        return answer_lines(lambda row: _described_line(row, place), _UNREAD)
    if options.command_line is None:
        complain("shell: name a COMMAND, or --jsonl")
        return 2
    parsed = parse_command(options.command_line)
    place = looked_at(parsed, place)
    if options.json:
        say_line(described(parsed, place))
        return 0
    say("\n".join(_as_text(parsed, place)))
    return 0


def place_at(workspace: Path) -> CommandPlace:
    """Return the surroundings of commands that run in a directory."""
    directory = os.path.realpath(workspace)
    return CommandPlace(
        workspace=directory,
        directory=directory,
        home=os.environ.get("HOME"),
        has_repository=has_repository(directory, directory),
        shows_credentials=shows_credentials(directory),
    )


def looked_at(parsed: ParsedCommand, place: CommandPlace) -> CommandPlace:
    """Return the place, with the links among the command's files that lead out of the workspace."""
    named = sought(parsed, place)
    workspace = place.workspace or "/"
    return replace(place, strays=strays_among(named.paths, workspace, globs=named.globs))


def described(parsed: ParsedCommand, place: CommandPlace) -> dict[str, Json]:
    """Return a command as JSON: `effect`, `reason`, `parts`, `families`, `targets`."""
    effect = effect_of(parsed, place)
    families = families_of(parsed, place)
    return {
        "effect": effect.effect,
        "reason": effect.reason,
        "parts": [_part(part) for part in effect.parts],
        "families": [] if families is None else [family.words() for family in families],
        "targets": list(effect.targets),
    }


def _part(part: Part) -> dict[str, Json]:
    words = [word.pattern if word.text is None else word.text for word in part.command.words]
    return {"words": [*words], "effect": part.effect, "reason": part.reason}


def _described_line(row: dict[str, Json], place: CommandPlace) -> dict[str, Json]:
    text = row["command"]
    if not isinstance(text, str):
        raise TypeError("a command is a text")
    parsed = parse_command(text)
    return described(parsed, looked_at(parsed, place))


def _as_text(parsed: ParsedCommand, place: CommandPlace) -> Iterator[str]:
    effect: CommandEffect = effect_of(parsed, place)
    yield f"{effect.effect}: {effect.reason}"
    for part in effect.parts:
        words = " ".join(word.pattern if word.text is None else word.text
                         for word in part.command.words)  # fmt: skip
        yield f"  {part.effect:8} {words or '(variables and redirections)'}: {part.reason}"
    for target in effect.targets:
        yield f"  reaches  {target}"
    families = families_of(parsed, place)
    if families is None:
        yield "  an approval holds for this call: a word is only known when it runs"
    for family in families or ():
        yield f"  an approval may cover: {family.words()}"
