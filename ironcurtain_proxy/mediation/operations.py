"""The agent's requests that are no tool calls: resources, prompts, completions, subscriptions.

A name is split into the server and the server's own name, the server is waited for, and the
mediator carries the operation. A list holds the entries that could be allowed. No server is asked
about another entry: its request has the same answer whether the entry exists or not.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, cast

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.session import Session
from ironcurtain_proxy.model.case import Case, Judgement
from ironcurtain_proxy.model.crossing import asked_by, asked_of, named_by
from ironcurtain_proxy.model.decision import (
    NOT_AVAILABLE,
    SUBSCRIBED_TO_TOO_MUCH,
    Deny,
    Ground,
    held_part,
)
from ironcurtain_proxy.model.operation import (
    Caller,
    ListKind,
    Method,
    Operation,
    ParsedRequest,
    ProgressListener,
    RequestId,
    label,
)
from ironcurtain_proxy.model.policy import ASK_KINDS, AskKind
from ironcurtain_proxy.model.reply import Answered, Refused, Reply
from ironcurtain_proxy.model.server import Section, ToolResult
from ironcurtain_proxy.model.values import Json, object_of

_NOT_OFFERED: Final = {"error": {"code": -32601, "message": "Method not found"}}
_OTHER_KIND: Final = {"error": {"code": -32602, "message": "Invalid params: of no declared kind"}}
_REJECTED: Final = -1
"""The code of MCP for sampling that a user rejects."""

_TO_NOTHING: Final = Ground(
    "question-of-no-call", "the server asks while nothing that the agent asked for is under way"
)
_UNSERVED: Final = Ground("not-offered", "servers cannot ask this")
_NO_CLIENT: Final = Ground("client-cannot-ask", "the agent's client did not say that it asks this")


class QuestionTarget(Protocol):
    """The agent's client, as far as it can be asked."""

    def takes(self, caller: Caller | None) -> frozenset[AskKind]:
        """Return the kinds of questions that this caller declared."""


class ServerQuestions(Struct, frozen=True, kw_only=True):
    """The questions of all servers of one session."""

    session: Session
    client: QuestionTarget
    names: Mapping[str, str]
    """Under which name the policy knows each server."""

    def allowed(self, server: str) -> frozenset[AskKind]:
        """Return the kinds of questions that a server may ask."""
        return self.session.in_force.policy.questions_of(self.names[server])

    async def handle(
        self,
        server: str,
        method: str,
        params: Mapping[str, Json],
        under_way: Sequence[Caller | None],
    ) -> Mapping[str, object]:
        """Decide on a question, ask it, and give the `result` or `error` for the server.

        Args:
            server: the operator's name of the server.
            method: elicitation, sampling, or a method that is not served.
            params: as the server sent them.
            under_way: the callers of the agent's operations that the server works on.
        """
        if method not in ASK_KINDS:
            await note_unserved(self.session.journal, method, _UNSERVED, server)
            return _NOT_OFFERED
        kind = _kind_of(method, params)
        # What is of no kind is refused for that.
        able = [one for one in reversed(under_way) if kind in {*self.client.takes(one), None}]
        asked = asked_by(server, cast("Method", method), params)
        case = self.session.journal.open_operation(asked, able[0] if able else None)
        case.note(("underWay", len(under_way)))
        if not able:
            ground = _NO_CLIENT if under_way else _TO_NOTHING
            case.judge(Judgement(decision=Deny(ground)))
            life = self.session.journal.refuse(case, "policy", ground)
            reply: Reply = await self.session.journal.guard(case, life)
        else:
            reply = await self.session.mediator.carry(case)
        if isinstance(reply, Answered):
            answer = reply.result
            return {"result": answer.result} if answer.error is None else {"error": answer.error}
        told = self.allowed(server) & self.client.takes((able or [*under_way] or [None])[-1])
        if kind not in told:
            return _OTHER_KIND if told & ASK_KINDS[method] else _NOT_OFFERED
        if method == "elicitation/create":
            return {"result": {"action": "decline"}}
        return {"error": {"code": _REJECTED, "message": "the request was rejected"}}


def _kind_of(method: str, params: Mapping[str, Json]) -> AskKind | None:
    """Return the kind of a question, or None if the protocol has none such."""
    if method == "sampling/createMessage":
        return "sampling-tools" if params.keys() & {"tools", "toolChoice"} else "sampling"
    return next((kind for kind in ASK_KINDS[method] if kind == params.get("mode", "form")), None)


UNKNOWN: Final = "unknown"
"""The server in the record of a request that names none."""

_METHOD_LENGTH: Final = 128


async def note_unserved(
    journal: Journal, method: str, ground: Ground, server: str = UNKNOWN
) -> None:
    """Record a request that was refused by its method or shape: no policy decides on it.

    The log holds every request. The parameters are not recorded, because their meaning is unknown
    for a request that is not decided.

    Args:
        journal: of the session.
        method: untrusted; stands in the record in the place of a tool.
        ground: why.
        server: who asked, if it was a server.
    """
    named = method[:_METHOD_LENGTH]
    case = journal.open(named, {}, (server, named), decision=Deny(ground))
    await journal.guard(case, journal.refuse(case, "arguments", ground))


_log: Final = logging.getLogger(__name__)

_MOST_SUBSCRIBED: Final = 1000
"""Subscriptions of one session."""
_SMALL: Final = 16 * 1024
"""Characters of news that are kept until a subscription is noted."""

LISTS: Final[Mapping[ListKind, tuple[str, str]]] = {
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
    "prompts": ("prompts/list", "name"),
}
"""The method of each list and the key of an entry's name, by the key of the list in its result."""


class Naming(Protocol):
    """The agent's names of prompts and resources; see `facts.naming`."""

    def prompt(self, server: str, name: str) -> str:
        """Return the agent's name of a prompt."""

    def prompt_meant(self, exposed: str) -> tuple[str, str] | None:
        """Return the server, and its own name of a prompt."""

    def uri(self, server: str, uri: str) -> str:
        """Return the agent's name of a resource."""

    def uri_meant(self, exposed: str) -> tuple[str, str] | None:
        """Return the server, and its own URI of a resource."""

    def entry(self, server: str, entry: Mapping[str, Json], key: str) -> dict[str, Json]:
        """Return an entry of a list with its URI renamed."""

    def result(self, server: str, answer: ToolResult) -> ToolResult:
        """Return an answer with the resources renamed that it names."""


class Lists(Protocol):
    """The lists of servers."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all servers."""

    async def until_settled(self, server: str) -> None:
        """Wait, but not for ever, until a server has started or failed."""

    async def until_started(self, server: str) -> str:
        """Wait as a call does. Returns what the agent is told when it has not started."""

    async def entries(
        self, server: str, method: str, keys: tuple[str, str]
    ) -> Sequence[Mapping[str, Json]]:
        """Return the entries of a list of one server; none if it has no such list.

        Raises:
            DownstreamError: it does not list them.
        """


class Operations(Struct, kw_only=True):
    """The operations of one session that are no tool calls."""

    naming: Naming
    lists: Lists
    session: Session
    _subscribed: set[tuple[str, str]] = field(default_factory=set)
    """Servers with their own URIs, as they were sent."""
    _subscribing: int = 0
    """The subscriptions that are decided, or asked for, now."""
    tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None = None
    """Tells the agent of a resource, under the name that it knows."""
    _early: dict[tuple[str, str], Mapping[str, Json]] = field(default_factory=dict)
    """The newest news of each resource that may be subscribed to already: a server tells of it as
    soon as it has answered, and the answer is recorded first."""

    async def handle(
        self,
        method: Method,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        """Carry one request from its arrival to its reply.

        Args:
            method: of a resource, a prompt or a completion.
            params: the raw `params`, of the shape that the protocol says.
            on_progress: gets the server's progress.
            caller: see `Operation.caller`.
        """
        asked = self._asked(method, params)
        case = self.session.journal.open_operation(asked, caller)
        if on_progress is not None:
            case.tell(on_progress)
        return await self.session.journal.guard(case, self._carry(case, asked))

    async def _carry(self, case: Case, asked: ParsedRequest) -> Reply:
        """Wait for the server; the mediator carries the operation unless its part is held."""
        if asked.server != UNKNOWN:
            await self.lists.until_started(asked.server)
        is_hidden = await self._is_hidden(asked)
        if not is_hidden and (held := await self._held(asked)) is not None:
            return await self.session.journal.refuse(case, "arguments", held)
        subscribes = asked.method == "resources/subscribe"
        if subscribes and len(self._subscribed) + self._subscribing >= _MOST_SUBSCRIBED:
            return await self.session.journal.refuse(case, "limit", SUBSCRIBED_TO_TOO_MUCH)
        # Counted before the wait: requests that come meanwhile find the room taken.
        self._subscribing += subscribes
        try:
            reply = await self.session.mediator.carry(case)
            if isinstance(reply, Answered) and reply.result.error is None:
                key = asked.server, str(case.arguments.get("uri"))
                if subscribes:
                    await self._note_subscribed(key)
                elif asked.method == "resources/unsubscribe":
                    self._subscribed.discard(key)
                return _renamed(reply, self.naming.result(asked.server, reply.result))
            return _as_not_available(reply) if is_hidden and isinstance(reply, Refused) else reply
        finally:
            self._subscribing -= subscribes
            if not self._subscribing:
                self._early.clear()

    async def _note_subscribed(self, key: tuple[str, str]) -> None:
        # The policy may have changed while the server was asked.
        if await self._could_be_allowed(key[0], "resources", key[1]):
            self._subscribed.add(key)
            if self.tell is not None and (early := self._early.pop(key, None)) is not None:
                await self.tell(early)

    async def listing(self, kind: ListKind) -> list[Json]:
        """Return the entries of all servers that could be allowed, under the agent's names.

        All are asked at once: several slow ones cost no more time than the slowest.
        """
        found: dict[str, list[Json]] = {}
        async with anyio.create_task_group() as group:
            for server in self.lists.names:
                group.start_soon(self._list, kind, server, found)
        return [entry for server in self.lists.names for entry in found.get(server, ())]

    async def _list(self, kind: ListKind, server: str, found: dict[str, list[Json]]) -> None:
        method, key = LISTS[kind]
        await self.lists.until_settled(server)
        try:
            entries = await self.lists.entries(server, method, (kind, key))
        except DownstreamError as error:
            _log.warning("no %s: %s", kind, error)
            return
        held = self._hold(server, kind, entries)
        found[server] = [
            self._exposed(server, kind, entry)
            for entry in entries
            if str(entry[key]) not in held
            and await self._could_be_allowed(server, kind, str(entry[key]))
        ]

    def _hold(
        self, server: str, kind: ListKind, entries: Sequence[Mapping[str, Json]]
    ) -> Mapping[str, str]:
        """Return the entries of a list that are held until a person accepts them.

        Only the words about a resource are held: a read is decided by its URI.
        """
        words = _WORDS if kind == "resources" else None
        named: dict[str, Json] = {
            str(entry[LISTS[kind][1]]): {
                key: value for key, value in entry.items() if words is None or key in words
            }
            for entry in entries
        }
        return self.session.pins.listed(server, _SECTIONS[kind], named)

    async def _held(self, asked: ParsedRequest) -> Ground | None:
        """Return why a prompt or template is held. Fetches a list that is missing."""
        kind, name = _pinned_name(asked)
        if kind is None or asked.server == UNKNOWN:
            return None
        section = _SECTIONS[kind]
        pins = self.session.pins
        if not pins.is_listed(asked.server, section):
            method, key = LISTS[kind]
            try:
                entries = await self.lists.entries(asked.server, method, (kind, key))
            except DownstreamError as error:
                return held_part(
                    section[:-1], f"cannot be compared with what was accepted: {error}"
                )
            self._hold(asked.server, kind, entries)
        why = pins.held(asked.server, section, name)
        return None if why is None else held_part(section[:-1], why)

    async def _is_hidden(self, asked: ParsedRequest) -> bool:
        """Tell whether a request is about a prompt or template that no list shows, if there is one.

        The policy alone decides this, also where it is held or annotated: neither the words nor the
        time of a denial may tell whether a server has it.
        """
        kind, name = _pinned_name(asked)
        return kind is not None and not await self._could_be_allowed(asked.server, kind, name)

    def updated(self, server: str, params: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """Return the news of a resource for the agent, or None if it has not subscribed to it."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return None
        news = {**params, "uri": self.naming.uri(server, uri)}
        if (server, uri) in self._subscribed:
            return news
        if self._subscribing and len(self._early) < _MOST_SUBSCRIBED and len(str(news)) < _SMALL:
            self._early[server, uri] = news
        return None

    async def forget_what_is_denied(self) -> None:
        """End subscriptions that the policy in force denies."""
        for server, uri in [*self._subscribed]:
            if not await self._could_be_allowed(server, "resources", uri):
                self._subscribed.discard((server, uri))

    def _exposed(self, server: str, kind: ListKind, entry: Mapping[str, Json]) -> Json:
        key = LISTS[kind][1]
        if kind == "prompts":
            return {**entry, key: self.naming.prompt(server, str(entry[key]))}
        return self.naming.entry(server, entry, key)

    async def _could_be_allowed(self, server: str, kind: ListKind, name: str) -> bool:
        """Return whether reading the resource, or using the prompt, may ever be forwarded."""
        is_prompt = kind == "prompts"
        operation = Operation(
            request_id=RequestId(""),
            exposed_name=name,
            server=server,
            tool=label("prompts/get", name) if is_prompt else "resources/read",
            arguments={} if is_prompt else {"uri": name},
            params={"ref": {"uri": name}} if kind == "resourceTemplates" else {},
            method="prompts/get" if is_prompt else "resources/read",
        )
        _, judged = await self.session.judge.examine(operation)
        return not isinstance(judged.decision, Deny)

    # --- what is asked of whom

    def _asked(self, method: Method, params: Mapping[str, Json]) -> ParsedRequest:
        kind, exposed = named_by(method, params)
        meant = self.naming.prompt_meant if kind == "prompt" else self.naming.uri_meant
        server, own = meant(exposed) or (UNKNOWN, exposed)
        return asked_of(method, params, server, own)


_SECTIONS: Final[Mapping[ListKind, Section]] = {
    "resources": "resources",
    "resourceTemplates": "templates",
    "prompts": "prompts",
}
"""The pinned parts that a list consists of."""

_WORDS: Final = frozenset({"name", "title", "description", "icons"})
"""The words about a resource; its type, its size and what changes with it are data."""


def _pinned_name(asked: ParsedRequest) -> tuple[ListKind | None, str]:
    """Return the list that a request is about, and the server's own name in it."""
    if asked.method == "prompts/get":
        return "prompts", str(asked.own.get("name"))
    if asked.method != "completion/complete":
        return None, ""
    reference = object_of(asked.own.get("ref"))
    is_prompt = reference.get("type") == "ref/prompt"
    return (
        "prompts" if is_prompt else "resourceTemplates",
        str(reference.get("name" if is_prompt else "uri")),
    )


def _as_not_available(refused: Refused) -> Refused:
    """Return one answer to all denials.

    Other refusals, such as of a full log, say what they are.
    """
    is_denial = refused.by in {"policy", "arguments"}
    return Refused(by="arguments", ground=NOT_AVAILABLE) if is_denial else refused


def _renamed(reply: Answered, result: ToolResult) -> Answered:
    return reply if result is reply.result else replace(reply, result=result)
