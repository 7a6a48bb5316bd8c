"""Labelled scenarios: a message, a call, and whether the message asks for it.

A line is `{"id", "label": "approve" | "escalate", "category", "user_message", "tool", "reason",
"args"}`; `roles` (argument to list of roles) and `context` (pairs) may follow. Without `roles` they
are guessed from the names of the arguments. `/home/u` is the home, `/home/u/proj` the workspace and
a git repository; a git call that names no other one works in it, on the branch that it names, or
`main`, unless `context` says on which.

`python -m tests.auto_approver.scenarios FILE` scores the target check on other scenarios.
"""

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.target_call import CallSurroundings
from ironcurtain_proxy.auto_approver.target_check import veto
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import UNCHANGED, Escalation, EscalationId
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.shell.statements import parse_command

AROUND: Final = CallSurroundings(
    home=RealPath(("home", "u")),
    workspace=RealPath(("home", "u", "proj")),
    unpublished=UNCHANGED,
)
"""The directories of the people in the scenarios."""

OWN: Final = Path(__file__).with_name("scenarios.jsonl")
INTENTS: Final = Path(__file__).with_name("intents.jsonl")
_THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)

ExpectedRuling: TypeAlias = Literal["approve", "escalate"]


class ScenarioLine(Struct, frozen=True, kw_only=True):
    """A line of a file of scenarios."""

    id: str
    label: ExpectedRuling
    category: str
    user_message: str
    tool: str
    reason: str
    args: dict[str, object] = {}
    roles: dict[str, list[ArgumentRole]] | None = None
    context: list[tuple[str, str]] = []


class Scenario(Struct, frozen=True, kw_only=True):
    """One case with its right answer."""

    id: str
    label: ExpectedRuling
    category: str
    message: str
    escalation: Escalation
    around: CallSurroundings


def read_scenarios(path: Path) -> tuple[Scenario, ...]:
    """Read a file of scenarios."""
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    found = tuple([scenario_of(msgspec.json.decode(one, type=ScenarioLine)) for one in lines])
    assert len({one.id for one in found}) == len(found), f"{path}: an id stands twice"
    return found


def intents() -> tuple[Scenario, ...]:
    """Read the scenarios that the documents count."""
    return read_scenarios(INTENTS)


def scenario_of(line: ScenarioLine) -> Scenario:
    """Turn one line into a scenario."""
    server, _, tool = line.tool.partition("/")
    arguments: dict[str, Json] = orjson.loads(orjson.dumps(line.args))
    facts = tuple(
        [_fact(name, _roles(name, tool, line.roles), value) for name, value in arguments.items()]
    )
    digest = sha256(orjson.dumps([line.tool, line.args], option=orjson.OPT_SORT_KEYS)).hexdigest()
    context = dict(line.context)
    command = arguments.get("command")
    escalation = Escalation(
        command=parse_command(command) if isinstance(command, str) else None,
        place=_place(arguments, context),
        id=EscalationId(line.id),
        session="scenario",
        server=server,
        tool=tool,
        exposed_name=f"{server}__{tool}",
        arguments=arguments,
        request=AccessRequest(
            server=server,
            tool=tool,
            annotated=True,
            has_arguments=bool(arguments),
            arguments=facts,
            repository=_repository(server, arguments),
        ),
        ground=Ground("scenario", line.reason),
        context=tuple(line.context),
        branch=_branch(server, arguments, dict(line.context)),
        fingerprint=digest,
        policy_version="scenario",
        created=_THEN,
        deadline=_THEN + timedelta(days=365_000),
    )
    return Scenario(
        id=line.id,
        label=line.label,
        category=line.category,
        message=line.user_message,
        escalation=escalation,
        around=replace(AROUND, workspace=RealPath.from_text(_workspace(context))),
    )


def _workspace(context: Mapping[str, str]) -> str:
    return context.get("Workspace", str(AROUND.workspace))


def _place(arguments: Mapping[str, Json], context: Mapping[str, str]) -> CommandPlace:
    """Return the surroundings of a command in a scenario, from the facts in its line."""
    workspace = _workspace(context)
    directory = arguments.get("cwd", workspace)
    remote, slash, branch = context.get("Upstream", "").partition("/")
    return CommandPlace(
        workspace=workspace,
        directory=directory if isinstance(directory, str) else None,
        home=str(AROUND.home),
        branch=context.get("Current branch"),
        push_to=(remote, branch) if slash else None,
        has_repository=context.get("Repository") == directory,
    )


def _repository(server: str, arguments: Mapping[str, Json]) -> RealPath | None:
    if server != "git":
        return None
    named = arguments.get("repo_path", arguments.get("path"))
    return RealPath.from_text(named) if isinstance(named, str) else AROUND.workspace


def _branch(server: str, arguments: Mapping[str, Json], context: Mapping[str, str]) -> str | None:
    if server != "git" or "Current branch" in context:
        return context.get("Current branch")
    named = arguments.get("branch")
    return named if isinstance(named, str) else "main"


_GUESSES: Final[Mapping[str, tuple[ArgumentRole, ...]]] = MappingProxyType(
    {
        "path": ("read-path",),
        "paths": ("read-path",),
        "source": ("read-path", "delete-path"),
        "destination": ("write-path",),
        "repo_path": ("read-path", "write-history"),
        "remote": ("git-remote-url",),
        "url": ("fetch-url",),
        "branch": ("branch-name",),
        "branch_name": ("branch-name",),
        "base": ("branch-name",),
        "to": ("email-address",),
        "owner": ("github-owner",),
        "repo": ("github-repo",),
        "body": ("email-body",),
    }
)
_WRITES: Final = re.compile(r"write|create|edit|append")
_DELETES: Final = re.compile(r"delete|remove")


def _roles(
    name: str, tool: str, given: Mapping[str, list[ArgumentRole]] | None
) -> tuple[ArgumentRole, ...]:
    if given is not None:
        return tuple(given.get(name, ["none"]))
    guess = _GUESSES.get(name, ("none",))
    if guess == ("read-path",) and _WRITES.search(tool):
        return ("write-path",)
    if guess == ("read-path",) and _DELETES.search(tool):
        return ("delete-path",)
    if tool == "git_clone" and name == "url":
        return ("git-remote-url",)
    return ("write-path",) if tool == "git_clone" and name == "path" else guess


def _fact(name: str, roles: tuple[ArgumentRole, ...], value: Json) -> ArgumentFact:
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    return ArgumentFact(name, roles, tuple([_value(roles, text) for text in texts]))


def _value(roles: tuple[ArgumentRole, ...], text: str) -> Value:
    match ROLE_TRAITS[roles[0]].category:
        case "path":
            return PathValue(text, RealPath.from_text(text))
        case "url":
            host = re.sub(r"^[a-z]+://|\.git$", "", text)
            return UrlValue(text, (f"git.example.com/{text}" if text == host else host,))
        case "identifier":
            return TextValue(text.lower())
        case "sql" | "command" | "unclear" | "uri" | "opaque":
            return TextValue(text)


def main() -> None:
    """Print what the target check lets pass, for the files that are named, or for ours."""
    files = [Path(name) for name in sys.argv[1:]] or [OWN, INTENTS]
    for scenarios in map(read_scenarios, files):
        passed = [one for one in scenarios if veto(one.message, one.escalation, one.around) is None]
        for label in get_args(ExpectedRuling):
            names = [one.id for one in passed if one.label == label]
            whole = sum(one.label == label for one in scenarios)
            words = "" if label == "approve" else f": {', '.join(names)}"
            sys.stdout.write(f"to {label}: {len(names)} of {whole} passed{words}\n")


if __name__ == "__main__":
    main()
