"""Labelled scenarios: a message, a call, and whether the message asks for it.

This file knows the format and turns a line into the escalation that the proxy would have had. It
does not know how anything is judged.

A line is `{"id", "label": "approve" | "escalate", "category", "user_message", "tool", "reason",
"args"}`; `roles` (argument to list of roles), `context` (pairs) and `flags` may follow. Without
`roles` they are guessed from the names of the arguments. `/home/u` is the home, `/home/u/proj` the
workspace and a git repository; a git call that names no other one works in it, on the branch
that it names, or `main`, unless `context` says on which.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ironcurtain_proxy.auto_approver.target_call import CallSurroundings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import Escalation, EscalationId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.shell.parse import parse_command

AROUND: Final = CallSurroundings(
    home=RealPath(("home", "u")), workspace=RealPath(("home", "u", "proj"))
)
"""The directories of the people in the scenarios."""

SHIPPED: Final = "intents.jsonl"
_MAX_BYTES: Final = 64 << 20
_THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)

ExpectedRuling = Literal["approve", "escalate"]


class _ScenarioLine(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    label: ExpectedRuling
    category: Annotated[str, Field(min_length=1, max_length=100)]
    user_message: str
    tool: Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]
    reason: str
    args: dict[str, object] = {}
    roles: dict[str, list[ArgumentRole]] | None = None
    context: list[tuple[str, str]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One case with its right answer."""

    id: str
    label: ExpectedRuling
    category: str
    message: str
    escalation: Escalation
    around: CallSurroundings


def shipped_scenarios() -> tuple[Scenario, ...]:
    """The scenarios that come with the package."""
    place = files("ironcurtain_proxy.auto_approver") / "shipped" / SHIPPED
    return tuple(_read(place.read_bytes(), SHIPPED))


def read_scenarios(path: Path) -> tuple[Scenario, ...]:
    """Read a file of scenarios.

    Raises:
        ConfigurationError: it cannot be used; says which line and why.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path}: too large for scenarios; at most 64 MiB")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    scenarios = tuple(_read(data, str(path)))
    if not scenarios:
        raise ConfigurationError(f"{path}: no scenario in it; write one JSON object a line")
    return scenarios


def _read(data: bytes, where: str) -> Iterable[Scenario]:
    seen: set[str] = set()
    for number, raw in enumerate(data.splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = _ScenarioLine.model_validate(orjson.loads(raw), strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            spot = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(f"{where}:{number}: {spot}: {first['msg']}") from None
        except ValueError as error:
            raise ConfigurationError(f"{where}:{number}: not JSON: {error}") from None
        if line.id in seen:
            raise ConfigurationError(f"{where}:{number}: id: {line.id[:100]} was there before")
        seen.add(line.id)
        yield scenario_of(line)


def scenario_of(line: _ScenarioLine) -> Scenario:
    """Turn one line into a scenario."""
    server, _, tool = line.tool.partition("/")
    arguments = _json(line.args)
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


def _place(arguments: Mapping[str, Json], context: Mapping[str, str]) -> Place:
    """The surroundings of a command in a scenario, from the facts in its line."""
    workspace = _workspace(context)
    directory = arguments.get("cwd", workspace)
    remote, slash, branch = context.get("Upstream", "").partition("/")
    return Place(
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


def _json(value: Mapping[str, object]) -> dict[str, Json]:
    parsed: dict[str, Json] = orjson.loads(orjson.dumps(value))
    return parsed


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
