"""Building the question for a call that needs a reviewer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, assert_never

from msgspec import Struct

from ironcurtain_proxy.approval.containment import hosts_of, why_alone
from ironcurtain_proxy.decision.authorizer import CONTAINED_SERVERS
from ironcurtain_proxy.grants.book import (
    is_never_remembered,
    whole_call_candidates,
    whole_tool_candidate,
)
from ironcurtain_proxy.grants.families import command_candidates
from ironcurtain_proxy.grants.grant_settlement import offered, tool_candidate
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates
from ironcurtain_proxy.mediation.judge import BLOCKED
from ironcurtain_proxy.model.annotation import CAPABILITIES, ArgumentRole, ToolEffect, ToolsAlike
from ironcurtain_proxy.model.crossing import bound_meta
from ironcurtain_proxy.model.escalation import (
    FOR_PEOPLE,
    NAMED_BY_LINE,
    SENSITIVE,
    Escalation,
    EscalationId,
    OriginReason,
    and_more,
    as_json,
    short_host,
    short_name,
    short_place,
)
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import TOOL_CALL, Operation
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.request import (
    NAMED_BY,
    AccessRequest,
    ByNobody,
    ByUser,
    Facts,
    InResult,
    Own,
    PathValue,
    Target,
    TargetOrigin,
    TextValue,
    UrlValue,
    Value,
    sql_of,
)
from ironcurtain_proxy.model.values import RealPath

HARMLESS: Final = 50
"""From this rank on, nothing leaves and nothing is lost: the operator's rule is the reason."""

_Said = tuple[int, str]


def said_of_call(
    facts: Facts,
    reasons: Sequence[OriginReason],
    workspace: RealPath | None,
    home: RealPath | None,
    opening: SandboxOpening | None = None,
) -> tuple[str, ...]:
    """Return what a call does, the gravest first; empty: the operator's own reason says more.

    Args:
        facts: of the call.
        reasons: why it is asked about.
        workspace: what is not outside.
        home: written as `~`.
        opening: the access beyond the sandbox that an approval opens.
    """
    found = [*_of_secrets(facts), *_of_host(facts, reasons, opening)]
    if facts.command is None:
        found += _of_request(facts, workspace, None if home is None else str(home))
    else:
        # The tables of programs, which only tools that run commands need.
        from ironcurtain_proxy.shell.in_words import said_of_command  # noqa: PLC0415

        found += said_of_command(facts.command, facts.place)
    found.sort(key=lambda one: one[0])
    by_rule = any(one.origin == "policy" and not _is_own(one) for one in reasons)
    if by_rule and all(rank >= HARMLESS for rank, _ in found):
        return ()
    return tuple(dict.fromkeys([text for _, text in found]))


def _is_own(reason: OriginReason) -> bool:
    """Return whether the ground is a sentence of the proxy's own, not the operator's."""
    return reason.ground.rule.startswith("structural-")


def _of_secrets(facts: Facts) -> Iterator[_Said]:
    server = short_name(facts.request.server)
    for one in facts.secrets[:1]:
        yield (-2, f"Sends a secret to {server}: {short_name(one.argument)} ({one.kind}).")


def _of_host(
    facts: Facts, reasons: Sequence[OriginReason], opening: SandboxOpening | None
) -> Iterator[_Said]:
    """Say which host the sandbox kept the same call from, if nothing else names it."""
    named = {*hosts_of(facts), *facts.place.every_host()}
    named |= {
        domain
        for fact in facts.request.arguments
        for value in fact.values
        if isinstance(value, UrlValue)
        for domain in value.domains
    }
    stopped = [one for one in (() if opening is None else opening.hosts) if one not in named]
    for host in stopped[:1]:
        if any(one.ground.rule == BLOCKED for one in reasons):
            said = f"{short_host(host)}: approving opens it to all allowed calls of this server."
            yield (-1, f"Reaches {said}")
        else:
            yield (3, f"Reaches {short_host(host)}, from which the sandbox kept the same call.")


def said_of_targets(targets: Sequence[Target], now: datetime) -> tuple[tuple[str, str], ...]:
    """Return one line on who named the targets of a call, the least known first; none: no line.

    Args:
        targets: of the call.
        now: aware, UTC.
    """
    told = [one for one in targets if not isinstance(one.origin, Own)]
    told.sort(key=lambda one: -NAMED_BY.index(one.named_by))
    lines = dict.fromkeys(
        [f"{short_name(one.text)}: {_of_origin(one.origin, now)}" for one in told]
    )
    return ((NAMED_BY_LINE, and_more([*lines])),) if lines else ()


def _of_origin(origin: TargetOrigin, now: datetime) -> str:
    match origin:
        case ByUser():
            return "you, in a message"
        case Own():
            return "your own records"
        case InResult():
            result = f"the result of {short_name(origin.server)}/{short_name(origin.tool)}"
            about = f" for {short_host(origin.about)}" if origin.about else ""
            where = "only in" if origin.is_only else "first in"
            minutes = max(int((now - origin.at).total_seconds() // 60), 0)
            ago = {0: "less than a minute", 1: "a minute"}.get(minutes, f"{minutes} minutes")
            return f"{where} {result}{about}, read {ago} ago"
        case ByNobody():
            return "no message of yours and no result that the proxy saw"
        case _:
            assert_never(origin)


# --- calls of tools ------------------------------------------------------------------------------


def _of_request(facts: Facts, workspace: RealPath | None, home: str | None) -> Iterator[_Said]:
    request = facts.request
    tool = short_name(request.tool)
    if not request.annotated:
        yield (13, _undescribed(request))
    by_role = _by_role(request)
    yield from _of_remotes(facts, by_role)
    yield from _of_paths(by_role, workspace, home)
    yield from _of_people_and_places(request, by_role)
    sql = sql_of(request)
    if sql is not None:
        reason = f": {short_name(sql.reason)}" if sql.reason else ""
        rank = {"reads": 55, "writes": 20, "destroys": 9, "runs": 9}[sql.effect]
        yield (rank, f"{_BY_SQL[sql.effect]} the database{reason}.")
    if request.effect is not None:
        rank, says = _BY_EFFECT[request.effect]
        yield (rank, f"{says}: {tool} of {short_name(request.server)}.")


def _undescribed(request: AccessRequest) -> str:
    tool = f"{short_name(request.server)}/{short_name(request.tool)}"
    if request.undescribed:
        names = and_more([short_name(one) for one in request.undescribed])
        return f"Gives {tool} an argument that nobody has described: {names}."
    return f"Calls {tool}, a tool that nobody has described."


_BY_SQL: Final = MappingProxyType(
    {"reads": "Reads", "writes": "Changes", "destroys": "Deletes from", "runs": "Runs code in"}
)
_BY_EFFECT: Final[Mapping[ToolEffect, _Said]] = {
    "sends": (19, "Reaches other machines or accounts"),
    "destroys": (21, "Deletes"),
    "runs": (22, "Runs programs"),
    "writes": (56, "May change files"),
    "reads": (57, "Only reads"),
}


def _by_role(request: AccessRequest) -> dict[ArgumentRole, list[Value]]:
    found: dict[ArgumentRole, list[Value]] = {}
    for fact in request.arguments:
        for role in fact.roles if fact.values else ():
            found.setdefault(role, []).extend(fact.values)
    return found


def _of_remotes(facts: Facts, by_role: Mapping[ArgumentRole, list[Value]]) -> Iterator[_Said]:
    remotes = [one for one in by_role.get("git-remote-url", ()) if isinstance(one, UrlValue)]
    if not remotes and not facts.pushes:
        return
    named = [_remote(one) for one in remotes]
    where = and_more(named) or "a remote"
    if not facts.pushes:
        yield (6, f"Fetches from {where}.")
        return
    named_branch = next(
        (one.text for one in by_role.get("branch-name", ()) if isinstance(one, TextValue)), None
    )
    branch = named_branch or facts.branch
    what = f"branch {short_name(branch)}" if branch else "commits"
    is_forced = any(facts.arguments.get(name) is True for name in ("force", "force_with_lease"))
    forced = " by force: commits there may be lost" if is_forced else ""
    yield (4, f"Pushes {what} to {where}{forced}.")


def _remote(value: UrlValue) -> str:
    hosts = and_more([short_host(one) for one in value.domains])
    is_name = "://" not in value.text and "@" not in value.text and value.text not in value.domains
    return f"{short_name(value.text)} ({hosts})" if is_name else hosts


def _of_paths(
    by_role: Mapping[ArgumentRole, list[Value]], workspace: RealPath | None, home: str | None
) -> Iterator[_Said]:
    from ironcurtain_proxy.shell.places import names_a_secret_file  # noqa: PLC0415  as above

    for role, (rank, does) in _PATHS.items():
        paths = [one for one in by_role.get(role, ()) if isinstance(one, PathValue)]
        secret = [one for one in paths if names_a_secret_file(one.text)]
        if secret:
            shown = short_place(str(secret[0].path), home)
            yield (rank - 4, f"{does} {shown}, {SENSITIVE}.")
        inside = [one for one in paths if workspace is not None and one.path.is_within(workspace)]
        outside = [one for one in paths if one not in inside]
        if any(one not in secret for one in outside):
            yield (rank, f"{does} {_places(outside, home)}, outside the workspace.")
        if any(one not in secret for one in inside):
            below = [_below(one.path, workspace) for one in inside]
            yield (rank + HARMLESS, f"{does} {and_more(below)}, in the workspace.")
    for role, does in _HISTORY.items():
        repositories = [one for one in by_role.get(role, ()) if isinstance(one, PathValue)]
        if repositories:
            rank = 9 if role == "delete-history" else 54
            yield (rank, f"{does} of the repository {_places(repositories, home)}.")


_PATHS: Final[Mapping[ArgumentRole, _Said]] = {
    "delete-path": (11, "Deletes"),
    "write-path": (12, "Writes"),
    "read-path": (16, "Reads"),
}
_HISTORY: Final[Mapping[ArgumentRole, str]] = {
    "delete-history": "May lose commits",
    "write-history": "Changes the history",
}


def _places(values: Sequence[PathValue], home: str | None) -> str:
    return and_more([short_place(str(one.path), home) for one in dict.fromkeys(values)])


def _below(path: RealPath, workspace: RealPath | None) -> str:
    count = 0 if workspace is None else len(workspace.parts)
    return short_name("/".join(path.parts[count:]) or "everything")


def _of_people_and_places(
    request: AccessRequest, by_role: Mapping[ArgumentRole, list[Value]]
) -> Iterator[_Said]:
    tool = short_name(request.tool)
    fetched = [one for one in by_role.get("fetch-url", ()) if isinstance(one, UrlValue)]
    if fetched:
        hosts = and_more(list(dict.fromkeys([short_host(d) for v in fetched for d in v.domains])))
        may_send = request.effect in {"sends", "runs", "destroys"}
        does = "May send data to" if may_send else "Fetches from"
        does = "Sends data to" if any("?" in one.text for one in fetched) else does
        yield (5, f"{does} {hosts}: {tool}.")
    for role, says in _NAMED.items():
        texts = [one.text for one in by_role.get(role, ()) if isinstance(one, TextValue)]
        if texts:
            named = and_more([short_name(one) for one in dict.fromkeys(texts)])
            yield (5, says(named, tool))
    if "message" in by_role or "email-body" in by_role:
        yield (7, f"Sends a text that other people will read: {tool}.")
    owners = [one.text for one in by_role.get("github-owner", ()) if isinstance(one, TextValue)]
    projects = [one.text for one in by_role.get("github-repo", ()) if isinstance(one, TextValue)]
    if owners or projects:
        named = short_name("/".join([*owners[:1], *projects[:1]]))
        does = "Reads from" if request.effect == "reads" else "Acts on"
        yield (6, f"{does} {named} at GitHub: {tool}.")


_NAMED: Final[Mapping[ArgumentRole, Callable[[str, str], str]]] = {
    "email-address": lambda named, tool: f"Sends to {named}: {tool}.",
    "share-permission": lambda named, tool: f"Shares with others, as {named}: {tool}.",
    "proxy-domain": lambda named, tool: f"Opens the network to {named}: {tool}.",
}


class Frame(Struct, frozen=True, kw_only=True):
    """The properties that all questions of a session share."""

    session: str
    in_force: PolicyInForce
    home: RealPath | None = None
    """The user's home directory. It is never remembered as a whole."""
    patience: timedelta
    """The time that a reviewer has to answer."""
    ending: str = ""
    """The end of a remembered approval, in words, or empty if it is not certain."""
    edits: bool = False
    """Whether a call may be made with other arguments than the agent's."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.in_force.policy


class QuestionInput(Struct, frozen=True, kw_only=True):
    """The input for the question about one call."""

    id: EscalationId
    now: datetime
    """Aware, UTC."""
    call: Operation
    facts: Facts
    asked: EscalatedCall
    reasons: Sequence[OriginReason]
    """The reasons that are not settled yet; never empty."""
    fingerprint: str
    directories: frozenset[RealPath] | None
    """The call's paths that are directories, or None if unknown, so that nothing can be
    remembered."""
    alike: ToolsAlike = MappingProxyType({})
    """Other tools of the server that do the same kind of thing to files."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    besides: tuple[tuple[str, str], ...] = ()
    """Additional explanation for the reviewer, such as why the call is not contained."""


def question_about(posed: QuestionInput, frame: Frame) -> Escalation:
    """Return the question, with everything that a reviewer should see."""
    places = Places(
        directories=posed.directories or frozenset(),
        home=frame.home,
        protected=tuple(entry.path for entry in frame.policy.protected_paths),
        ending=frame.ending,
    )
    for_people = any(reason.origin in FOR_PEOPLE for reason in posed.reasons)
    like = _alike(posed, frame)
    patterns = () if posed.directories is None else candidates(posed.asked, places, like)
    return Escalation(
        id=posed.id,
        session=frame.session,
        server=posed.call.server,
        tool=posed.call.tool,
        caller=posed.call.caller,
        exposed_name=posed.call.exposed_name,
        arguments=posed.facts.arguments,
        request=posed.facts.request,
        ground=posed.reasons[0].ground,
        roles=posed.asked.roles,
        reasons=tuple(posed.reasons),
        told=said_of_call(
            posed.facts, posed.reasons, frame.policy.workspace, frame.home, posed.asked.opening
        ),
        context=(*_context(posed.facts, posed.call), *posed.besides),
        definition=posed.asked.definition,
        command=posed.facts.command,
        place=posed.facts.place,
        branch=posed.facts.branch,
        sandboxed=posed.sandboxed,
        held=posed.asked.held,
        opening=posed.asked.opening,
        alone=_why_alone(posed, frame),
        candidates=offered(
            posed.reasons,
            patterns,
            tool_candidate(posed.asked),
            command_candidates(posed.asked, frame.home, frame.ending),
            whole_call_candidates(posed.asked),
            whole_tool_candidate(posed.asked),
        )
        if not is_never_remembered(posed.asked) and not for_people
        else (),
        for_people=for_people,
        acts_by_itself=bool(posed.facts.acts_by_itself),
        editable=frame.edits and posed.call.method == TOOL_CALL,
        fingerprint=posed.fingerprint,
        policy_version=frame.policy.version,
        created=posed.now,
        deadline=posed.now + frame.patience,
    )


def _alike(posed: QuestionInput, frame: Frame) -> ToolsAlike:
    """Return the tools of the same kind about which the policy has no rule more."""
    books = (frame.policy.book, *[floor.book for floor in frame.policy.floors])
    server, tool = posed.facts.request.server, posed.call.tool
    # Where nobody said what a tool does, another one with such a path may run what lies there.
    is_known = posed.facts.request.effect is not None or server in CONTAINED_SERVERS
    return {
        other: known
        for other, known in (posed.alike if is_known else {}).items()
        if all({*book.for_tool(server, other)} <= {*book.for_tool(server, tool)} for book in books)
    }


def _why_alone(posed: QuestionInput, frame: Frame) -> tuple[str, ...]:
    """Return why "approve all" leaves the call out; empty if it is known to be harmless."""
    found = why_alone(posed.facts, frame.policy.workspace, held=posed.asked.held)
    capabilities = {name for reason in posed.reasons for name in reason.capabilities}
    asked = sorted(capabilities & {"fs.delete", "net.egress", "secrets.access", "data.user"})
    found = (*found, *[f"it may {CAPABILITIES[name]}" for name in asked])
    return (*found, "an approval opens its sandbox") if posed.asked.opening else found


def _context(facts: Facts, call: Operation) -> tuple[tuple[str, str], ...]:
    """Additional facts for the reviewer.

    An approval holds only for a call with the same context.
    """
    context = facts.context
    if facts.branch is not None:
        context = (*context, ("Current branch", facts.branch))
    if facts.head is not None:
        # Else an answer that outlives its proxy, or the wait of its call, would publish another.
        context = (*context, ("Commit", facts.head))
    meta = bound_meta(call.params) if "_meta" in call.params else {}
    return (*context, ("Sent besides (_meta)", as_json(meta))) if meta else context
