"""`ironcurtain-proxy grants try`: the calls that a remembered approval would cover."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.arguments import add_lines
from ironcurtain_proxy.cli.output import answer_lines, complain, say
from ironcurtain_proxy.facts.commands import CommandContext, observed
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.grants.families import command_candidates, covering, single_families
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.requests import utc_now
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.grant import Grant, GrantId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.shell.families import sought
from ironcurtain_proxy.shell.parse import parse_command

_EXAMPLE: Final = """\
With --jsonl each line of the input is {"approved": COMMAND, "then": COMMAND}, and may have
"workspace" and "cwd". Each line of the output is {"covered": true, "family": WORDS}. Files and
remotes are read as they are now.

examples:
  ironcurtain-proxy grants try 'go test ./...' 'go test -v ./internal/store'
  ironcurtain-proxy grants try --jsonl < pairs.jsonl

exit status: 0; 1 if the second command would be asked about, or a line could not be read
"""


def add_trying(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the action `try`."""
    trying = actions.add_parser(
        "try",
        help="show what a remembered approval of a command would cover",
        description="Say whether a remembered approval of one shell command would cover a second\n"
        "command. The approval is remembered with the first candidate that a question would\n"
        "offer. Nothing is run or remembered.",
        epilog=_EXAMPLE,
    )
    trying.add_argument("approved", nargs="?", metavar="APPROVED", help="the approved command")
    trying.add_argument("then", nargs="?", metavar="THEN", help="the command that comes later")
    add_lines(trying)


def try_families(options: argparse.Namespace) -> int:
    """Try one pair of commands, or the pair in each line."""
    workspace = str(options.workspace or Path.cwd())
    if options.jsonl:
        refusal: dict[str, Json] = {
            "covered": False,
            "family": "nothing: the line cannot be read",
        }
        return answer_lines(lambda row: answer_to(row, workspace), refusal)
    if options.then is None:
        complain("grants try: name APPROVED and THEN, or --jsonl")
        return 2
    row = {"approved": options.approved, "then": options.then}
    answer = answer_to(row, workspace)
    said = "covered" if answer["covered"] else "asked"
    say(f"{said}: an approval covers {visible(str(answer['family']))}")
    return 0 if answer["covered"] else 1


def answer_to(row: Mapping[str, Json], workspace: str) -> dict[str, Json]:
    """The answer whether an approval of one command covers another: `covered`, `family`.

    Args:
        row: `approved` and `then`; `workspace` and `cwd` where these are others.
        workspace: the workspace, if `row` names none.

    Raises:
        TypeError: the row is no object of texts.
        KeyError: the row names no command.
    """
    said = row.get("workspace")
    place = said if isinstance(said, str) else workspace
    cwd = row.get("cwd")
    directory = os.path.join(place, cwd) if isinstance(cwd, str) else place  # noqa: PTH118
    approved = _call(row["approved"], place, directory)
    following = _call(row["then"], place, directory)
    home = Path.home()
    found = command_candidates(approved, RealPath.from_text(str(home)))
    patterns = () if found is None else found.patterns
    if not patterns:
        return {"covered": False, "family": "nothing"}
    grants = [
        Grant(id=GrantId(str(n)), pattern=one, created=utc_now(), source="try", reason="")
        for n, one in enumerate(single_families(patterns[0]))
    ]
    return {
        "covered": covering(grants, following) is not None,
        "family": patterns[0].description,
    }


def _call(command: Json, workspace: str, directory: str) -> EscalatedCall:
    """A call of a shell tool with this command."""
    if not isinstance(command, str):
        raise TypeError("a command is a text")
    real = os.path.realpath(directory)
    place = Place(
        workspace=os.path.realpath(workspace),
        directory=real,
        home=str(Path.home()),
        # A directory that is not there is taken for a new repository: nothing could run there.
        has_repository=os.path.isdir(f"{real}/.git") or not os.path.lexists(real),  # noqa: PTH112
    )
    grounds = CommandContext(sought=sought, remotes=lambda _server: GitRemotes(os.environ))
    parsed: ParsedCommand = parse_command(command)
    return EscalatedCall(
        server="shell",
        tool="run",
        definition="try",
        request=AccessRequest(
            server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
        ),
        arguments={"command": command},
        roles=(),
        command=parsed,
        place=observed(parsed, place, grounds, "shell"),
    )
