"""The tool that a person means, the further questions about a call, and what would avoid them.

Agents and clients say `server__tool`, or the bare name where there is one server; the operator
writes `server/tool`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import described
from ironcurtain_proxy.cli.output import picked
from ironcurtain_proxy.config.annotating.texts import words_of
from ironcurtain_proxy.config.policy.lint import of_same_verb
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.document import nearest, shown
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import ServerCall
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Escalate, effect_of
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.grant import Grant
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.rehearsal.memory import DEFINITION, EscalatedStep, Memory
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.rehearsal import RehearsedCall, rehearsal_for
from ironcurtain_proxy.wiring.reviewers import persisted_grants

# --- explain names


SEPARATOR: Final = "__"


def tool_meant(name: str, servers: Sequence[str], *, may_be_bare: bool) -> tuple[str, str]:
    """Return the server and the tool that a name stands for.

    Args:
        name: as it was written.
        servers: the names that a server may have here.
        may_be_bare: whether there is only one server, whose tools keep their own names.

    Raises:
        ConfigurationError: it is no name of a tool.
    """
    server, slash, tool = name.partition("/")
    if slash and server and tool:
        return server, tool
    # The longest name first: one server may be called `a`, another `a__b`.
    for known in sorted(servers, key=len, reverse=True):
        tool = name.removeprefix(known + SEPARATOR)
        if tool not in {name, ""}:
            return known, tool
    server, found, tool = name.partition(SEPARATOR)
    if server and found and tool:
        return server, tool
    if may_be_bare and name and not slash:
        return servers[0], name
    raise ConfigurationError(
        f"{name!r} is not SERVER/TOOL, such as filesystem/read_file, nor the agent's SERVER__TOOL"
    )


def refuse_unknown_server(
    server: str, configured: Iterable[str], known: Collection[str] = ()
) -> None:
    """Refuse a server that nobody configured or annotated.

    Raises:
        ConfigurationError: with the name that was probably meant.
    """
    names = [*configured]
    if server in names or server in known:
        return
    guess = nearest(server, names) or nearest(server, known)
    hint = f" (did you mean {shown(guess)}?)" if guess else ""
    listed = ", ".join(names) or "none"
    raise ConfigurationError(f"there is no server {shown(server)}{hint}; configured: {listed}")


def about_unknown_tool(server: str, tool: str, annotations: Annotations) -> list[str]:
    """Return a note if nobody annotated the tool."""
    if (server, tool) in annotations:
        return []
    known = [name for owner, name in annotations if owner == server]
    verbs = {words_of(name)[:1] for _, name in annotations}
    guess = nearest(tool, of_same_verb(tool, known) if words_of(tool)[:1] in verbs else known)
    if guess:
        return ["", f"tool {shown(tool)} has no annotation: did you mean {shown(guess)}?"]
    how = "no rule allows it until you describe it with `ironcurtain-proxy annotate`"
    return ["", f"tool {shown(tool)} has no annotation: {how}"]


# --- explain overlay


class NamedCall(Struct, frozen=True):
    """A tool of the live configuration."""

    server: str
    """The operator's name of the server."""
    tool: str
    settings: Settings


class ExplainedCall(Struct, frozen=True):
    """The decision of `serve`, as far as it can be known from files."""

    certain: RehearsedCall
    if_unique: RehearsedCall | None
    """The decision once every server has listed its tools and no other has a tool of this name:
    lists that spare a question then count for the bare name, too. None: the decision is the same.
    """
    kept: tuple[Grant, ...] = ()
    """The kept grants that a new session would use for the call, so that nobody is asked."""


def rehearsed(
    asked: NamedCall, arguments: Arguments, loaded: LoadedPolicy, environ: Mapping[str, str]
) -> ExplainedCall:
    """Return the decision on a call.

    It leaves out a server's own hints and tools, which files do not have.

    Raises:
        ConfigurationError: a server's sandbox cannot be as it is configured.
    """
    # The command prints the reasons for which `serve` would not start; here a call is explained.
    settings = replace(asked.settings, sandbox_policy="warn")
    sandbox = find_sandbox(settings, environ, lambda _: None)
    rehearsal = rehearsal_for(settings, loaded, environ, sandbox)

    def outcome(*, is_unique: bool) -> RehearsedCall:
        rehearse = partial(rehearsal.of_call, is_unique=is_unique)
        return anyio.run(rehearse, asked.server, asked.tool, arguments)

    certain, unique = outcome(is_unique=len(settings.servers) == 1), outcome(is_unique=True)
    step = step_of(certain, asked, arguments, loaded)
    kept = () if step is None else covering_kept(step, settings, loaded)
    return ExplainedCall(certain, None if unique == certain else unique, kept)


def step_of(
    found: RehearsedCall, asked: NamedCall, arguments: Arguments, loaded: LoadedPolicy
) -> EscalatedStep | None:
    """Return a call that somebody is asked about, as grants see it, or None if nobody is."""
    facts, settings = found.gathered, asked.settings
    if not isinstance(facts, Facts) or not isinstance(found.decision, Escalate):
        return None
    if found.uncontained == "":
        return None
    (server,) = [spec.annotations for spec in settings.servers if spec.name == asked.server]
    own = loaded.annotations.get((server, asked.tool))
    alike = {
        tool: (DEFINITION, own.shared_with(one))
        for (owner, tool), one in loaded.annotations.items()
        if own is not None and owner == server and tool != asked.tool
    }
    return EscalatedStep(
        session="try",
        call=ServerCall(asked.server, asked.tool, arguments),
        facts=facts,
        judged=found.judged,
        policy=loaded.policy,
        home=RealPath.from_text(str(settings.home)),
        workspace=settings.workspace or RealPath(()),
        alike={tool: shared for tool, shared in alike.items() if shared[1]},
    )


def covering_kept(
    step: EscalatedStep, settings: Settings, loaded: LoadedPolicy
) -> tuple[Grant, ...]:
    """Return the kept grants that a new session would use for a call, or none.

    The server's own description of the tool, which a grant is bound to, is not in any file.
    """
    keeper, _ = persisted_grants(settings, loaded, SystemClock())
    if keeper is None:
        return ()
    memory = Memory()
    for one in keeper.load():
        memory.restore(one)
    return memory.covering(step)


def as_text(found: ExplainedCall, asked: NamedCall) -> list[str]:
    """Return the lines of the report."""
    lines = ["", "besides the policy", *_lines(found.certain.judged, asked)]
    lines += _in_the_sandbox(found.certain)
    for one in found.kept:
        said = f"{one.id[:8]} covers it, so that nobody is asked: {one.pattern.description}"
        lines += ["", f"kept approval {said}"]
    if found.if_unique is not None:
        name = f'"{asked.tool}"'
        lines += ["", f"once every server has listed its tools, and no other has {name}"]
        lines += _lines(found.if_unique.judged, asked)
        full = f'"{asked.server}/{asked.tool}"'
        lines.append(f"  for it to hold in any case, write {full} where you wrote {name}")
    return lines


def _in_the_sandbox(outcome: RehearsedCall) -> list[str]:
    lines = []
    if outcome.uncontained is not None:
        why = outcome.uncontained
        says = f"asks: {why}" if why else "settles it, if it can be taken back"
        lines += ["", "containment", f"  {says}"]
    if outcome.opened:
        opened = ", ".join(outcome.opened)
        lines += ["", "in the server's sandbox", f"  once approved, a second instance: {opened}"]
    if outcome.blocked is None:
        return lines
    return [
        *lines,
        "",
        "in the server's sandbox",
        f"  DENIED, and nobody is asked: {outcome.blocked.reason}",
    ]


def _lines(found: Judgement, asked: NamedCall) -> list[str]:
    names = ", ".join([described(name) for name in sorted(found.capabilities)])
    lines = [f"  the call needs: {names or 'nothing that is known'}"]
    asking = [reason for reason in found.reasons if reason.origin != "policy"]
    if effect_of(found.decision) == "deny":
        ground = found.decision.ground
        return [*lines, f"  DENIED by {ground.rule}: {ground.reason}"]
    if not asking:
        return [*lines, "  nothing else asks"]
    for reason in asking:
        lines.append(f"  asks: {reason.ground.reason} ({reason.origin}, {reason.ground.rule})")
        lines += [f"    to be spared: {text}" for text in spared_by(reason, asked)]
    return lines


def spared_by(reason: OriginReason, asked: NamedCall) -> Sequence[str]:
    """Return the smallest change that avoids a question, for the session and for good."""
    tool = f"{asked.server}/{asked.tool}"
    match reason.origin:
        case "policy":
            return ["approve with --remember: a pattern for this session"]
        case "tool-policy":
            return [
                f"approve with --remember: {tool} for this session",
                f'"exemptTools": ["{tool}"] in security.interceptor: for good',
            ]
        case "secrets":
            return [f'"askAboutSecrets": false in arguments of the entry of {asked.server}']
        case "target":
            return ['"askWhenNamedBy" in targets without what named it: for good']
        case "capability":
            names = ", ".join([f'"{name}": "allow"' for name in reason.capabilities])
            if not names:
                return [f'a declaration of "{tool}" in capabilities.tools']
            return [
                "approve it once: the capability is then allowed for this session",
                f"{names} in the rules of a profile of your own: for good",
            ]


def as_json(found: ExplainedCall, asked: NamedCall) -> Mapping[str, Json]:
    """Return the report as JSON."""
    fields = _fields(found.certain.judged, asked)
    blocked = found.certain.blocked
    fields["sandbox"] = None if blocked is None else blocked.reason
    fields["opened"] = [*found.certain.opened]
    fields["uncontained"] = found.certain.uncontained
    fields["kept"] = [one.id for one in found.kept]
    if found.if_unique is not None:
        fields["ifNameIsUnique"] = _fields(found.if_unique.judged, asked)
    return fields


def _fields(found: Judgement, asked: NamedCall) -> dict[str, Json]:
    return {
        "decision": effect_of(found.decision),
        "rule": found.decision.ground.rule,
        "capabilities": [*sorted(found.capabilities)],
        "origins": [
            {
                "origin": reason.origin,
                **picked(reason.ground, "rule reason"),
                "capabilities": [described(name) for name in reason.capabilities],
                "sparedBy": [*spared_by(reason, asked)],
            }
            for reason in found.reasons
        ],
    }
