"""Calls for the engine, for tests: whoever makes one says only what matters."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision, evaluate
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ApprovalPattern,
    FilesFound,
    Interaction,
    Knowledge,
    OperationKind,
    SafePath,
    compile_path_regex,
)
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST, MEDIUM_AT_MOST, band_of
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Json, RealPath

ZONE = timezone(timedelta(hours=-5))
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=ZONE)
MIDNIGHT = datetime(2026, 3, 4, 0, 0, tzinfo=ZONE)
WORKSPACE = RealPath.from_text("/srv/project")
ON = AutoConfirmSettings(enabled=True)
CALM = Knowledge(moment=NOON, health="normal")
SAFE_PATHS = tuple(
    SafePath(path=path) for path in ("/tmp/", "/private/tmp/", "project_root/", ".claude/", ".git/")
)


def path_fact(name: str, *paths: str, roles: tuple[ArgumentRole, ...]) -> ArgumentFact:
    return ArgumentFact(name, roles, tuple(PathValue(p, RealPath.from_text(p)) for p in paths))


def url_fact(
    name: str, text: str, *domains: str, role: ArgumentRole = "fetch-url", ordinary: bool = True
) -> ArgumentFact:
    return ArgumentFact(name, (role,), (UrlValue(text, domains, ordinary),))


def text_fact(name: str, *texts: str, role: ArgumentRole) -> ArgumentFact:
    values: tuple[Value, ...] = tuple(TextValue(text) for text in texts)
    return ArgumentFact(name, (role,), values)


def call(server: str, tool: str, *facts: ArgumentFact, **arguments: Json) -> Interaction:
    """An escalated call of a worker in the workspace, on a feature branch."""
    named: dict[str, Json] = {
        fact.name: fact.values[0].text if len(fact.values) == 1 else [v.text for v in fact.values]
        for fact in facts
        if fact.values
    }
    return Interaction(
        id="7",
        request=AccessRequest(
            server=server,
            tool=tool,
            annotated=True,
            has_arguments=bool(facts or arguments),
            arguments=facts,
        ),
        arguments={**named, **arguments},
        session="worker-1",
        session_type="worker",
        origins=("policy",),
        workspace=WORKSPACE,
        home=RealPath.from_text("/home/ann"),
        found=FilesFound(files=frozenset(_paths(facts)), own=frozenset(_paths(facts))),
        branch="feature/x",
    )


def _paths(facts: Iterable[ArgumentFact]) -> Iterator[RealPath]:
    for fact in facts:
        yield from (value.path for value in fact.values if isinstance(value, PathValue))


def read(*paths: str) -> Interaction:
    return call("filesystem", "read_text_file", path_fact("path", *paths, roles=("read-path",)))


def edit(*paths: str) -> Interaction:
    return call("filesystem", "write_file", path_fact("path", *paths, roles=("write-path",)))


def delete(path: str = "/srv/project/a") -> Interaction:
    return call("files", "delete_file", path_fact("path", path, roles=("delete-path",)))


def fetch(host: str = "docs.example.org") -> Interaction:
    return call("fetch", "fetch", url_fact("url", f"https://{host}/a", host))


def git(tool: str, *facts: ArgumentFact, **arguments: Json) -> Interaction:
    history: tuple[ArgumentRole, ...] = ("read-path", "write-history")
    repository = path_fact("repo_path", str(WORKSPACE), roles=history)
    return call("git", tool, repository, *facts, **arguments)


def push(*, branch: str | None = None, current: str | None = "feature/x") -> Interaction:
    facts = [url_fact("remote", "origin", "localhost/acme/w", role="git-remote-url")]
    if branch is not None:
        facts.append(text_fact("branch", branch, role="branch-name"))
    return replace(git("git_push", *facts), branch=current)


def shell(operation: str | None, command: str = "x", **arguments: Json) -> Interaction:
    cwd = path_fact("cwd", str(WORKSPACE), roles=("read-path",))
    found = call("shell", "run_command", cwd, command=command, **arguments)
    return replace(found, command_operation=operation)


def query(sql: str = "select 1") -> Interaction:
    return replace(call("postgres", "run_query", sql=sql), command_operation="database")


def strange(*paths: str) -> Interaction:
    """Nobody knows what it does; it can name nothing but paths to read."""
    return call("odd", "frobnicate", path_fact("path", *paths, roles=("read-path",)))


def decided(
    interaction: Interaction, settings: AutoConfirmSettings = ON, knowledge: Knowledge = CALM
) -> EngineDecision:
    return evaluate(interaction, settings, knowledge)


def pattern(
    operation: OperationKind, scope: str | None, *, auto_approve: bool = True
) -> ApprovalPattern:
    return ApprovalPattern(
        name="p",
        operation=operation,
        scope=None if scope is None else compile_path_regex(scope),
        auto_approve=auto_approve,
    )


def operations(interactions: Iterable[Interaction]) -> list[str]:
    return [decided(interaction).operation for interaction in interactions]


def follows(decision: EngineDecision) -> bool:
    """Whether the parts of a decision agree with what it says it rests on."""
    risk, confidence = decision.factors, decision.confidence_factors
    return (
        decision.risk == sum(contribution for _, contribution in risk)
        and decision.confidence == sum(contribution for _, contribution in confidence)
        and decision.band == band_of(decision.risk)
        and (
            not decision.approves
            or (decision.risk <= MEDIUM_AT_MOST and decision.verdict != "escalate")
        )
        and decision.alert == (not decision.approves and decision.risk > HIGH_AT_MOST)
        and decision.approves == (decision.target is None) == (decision.priority is None)
        and (decision.action == "conditional") == bool(decision.safeguards)
    )
