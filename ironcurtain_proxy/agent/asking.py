"""Allowed questions of servers, sent to the agent's client.

The client shows its user the proxy's name only, so each message begins with the server's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import anyio

from ironcurtain_proxy.agent.era import NOT_CROSSING
from ironcurtain_proxy.agent.messages import RefusedQuestionError
from ironcurtain_proxy.errors import AgentError, CallTimedOutError, ServerUnavailableError
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.operation import Method
from ironcurtain_proxy.model.policy import AskKind
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import ProgressListener

_INTRODUCTION: Final = 0.25
"""Seconds in which a client says what it is, before servers that may ask nothing are greeted. All
known clients say it as soon as they have started the proxy."""
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_MOST_PAGES: Final = 1000
"""The most shown pages that are remembered, for notifications of their completion."""
_CANCELLED: Final[Mapping[str, Json]] = {"action": "cancel"}
_REJECTED: Final[Mapping[str, Json]] = {"code": -1, "message": "the client did not answer this"}


class AgentClient(Protocol):
    """The agent's client, which shows questions to its user."""

    def capabilities_of(self, caller: Caller | None) -> Mapping[str, Json] | None:
        """Return what a caller can do; `None`: nobody has said so yet, or its call has ended."""

    def every(self) -> Iterator[Mapping[str, Json]]:
        """Return what each client can do that may be asked now."""

    def waiting(self, caller: Caller | None, *, is_sent: bool) -> AbstractContextManager[None]:
        """Answer the requests of this call before a client's deadline, meanwhile.

        `is_sent` says whether a server may know of the call.
        """

    async def request(
        self,
        method: str,
        params: Mapping[str, Json],
        seconds: float,
        caller: Caller | None = None,
    ) -> Mapping[str, Json]:
        """Send the client a request; raises `AgentError` or `TimeoutError`."""


class AuthorizedQuestion(Protocol):
    """An authorized question."""

    @property
    def method(self) -> Method:
        """Elicitation or sampling."""

    @property
    def server(self) -> str:
        """The server that asks, by the operator's name."""

    @property
    def arguments(self) -> Mapping[str, Json]:
        """The `params` of the question."""

    @property
    def caller(self) -> Caller | None:
        """Whose call the question belongs to."""


def kinds_shown(capabilities: Mapping[str, Json]) -> frozenset[AskKind]:
    """The kinds of questions that a client with these capabilities takes."""
    found: set[AskKind] = set()
    forms, sampling = capabilities.get("elicitation"), capabilities.get("sampling")
    if isinstance(forms, dict):
        # An empty object means forms: clients name the kind only since there are others.
        found |= {"form"} if not forms or "form" in forms else set()
        found |= {"url"} if "url" in forms else set()
    if isinstance(sampling, dict):
        found |= {"sampling", "sampling-tools"} if "tools" in sampling else {"sampling"}
    return frozenset(found)


class AskedClient:
    """Implements `ports.OperationTarget` for questions of servers."""

    def __init__(self, seconds: float) -> None:
        """Begin without a client.

        Args:
            seconds: the deadline for its user's answer.
        """
        self.client: AgentClient | None = None
        self.introduced = anyio.Event()
        """Set once the client has declared its capabilities."""
        self._seconds = seconds
        self._pages: set[tuple[str, str]] = set()

    def can_ask(self, method: Method, mode: str, caller: Caller | None) -> bool:
        """Whether this caller declared that it takes such questions."""
        kind: AskKind = "sampling"
        if method == "elicitation/create":
            kind = "url" if mode == "url" else "form"
        return self.client is not None and kind in kinds_shown(
            self.client.capabilities_of(caller) or {}
        )

    def waiting(self, caller: Caller | None, *, is_sent: bool) -> AbstractContextManager[None]:
        """Note that this call waits for a reviewer, meanwhile."""
        client = self.client
        return nullcontext() if client is None else client.waiting(caller, is_sent=is_sent)

    async def mirrored(
        self, allowed: frozenset[AskKind], offered: Mapping[str, Json], caller: Caller | None
    ) -> Mapping[str, Json]:
        """Return the client capabilities for a server: those that are both declared and allowed.

        What the client declares as an extension or an experiment crosses as it is, except what the
        proxy itself would have to do: results that are fetched later. The client is waited for, but
        only a moment for a server that may ask nothing.
        """
        if caller is None:
            with anyio.move_on_after(None if allowed else _INTRODUCTION):
                await self.introduced.wait()
        declared = None if self.client is None else self.client.capabilities_of(caller)
        # A client without a handshake says with each request what it can do, and is asked no more.
        both = allowed if declared is None else allowed & kinds_shown(declared)
        told: dict[str, Json] = {**offered, **_crossing(declared or {})}
        forms: dict[str, Json] = {kind: {} for kind in ("form", "url") if kind in both}
        if forms:
            told["elicitation"] = forms
        if "sampling" in both:
            told["sampling"] = {"tools": {}} if "sampling-tools" in both else {}
        return told

    def is_done(self, server: str, params: Mapping[str, Json]) -> bool:
        """Whether a server may report this page as completed: the page was shown."""
        page = (server, str(params.get("elicitationId")))
        if page not in self._pages:
            return False
        self._pages.discard(page)
        return True

    async def forward(
        self,
        call: AuthorizedQuestion,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> ToolResult:
        """Ask the client, and wait for its answer."""
        del on_progress, roots, opening
        if self.client is None:
            raise ServerUnavailableError("there is no client to ask")
        if call.arguments.get("mode") == "url" and len(self._pages) < _MOST_PAGES:
            self._pages.add((call.server, str(call.arguments.get("elicitationId"))))
        try:
            answer = await self.client.request(
                call.method, _shown(call), self._seconds, call.caller
            )
        except TimeoutError:
            raise CallTimedOutError("the client did not answer in time") from None
        except RefusedQuestionError as error:
            words = error.words or str(_REJECTED["message"])
            return ToolResult(error={"code": error.code, "message": words})
        except AgentError:
            return ToolResult(error=_REJECTED)
        if call.method != "elicitation/create":
            return ToolResult(result=answer)
        return ToolResult(result=answer if _fits(answer, call.arguments) else _CANCELLED)


def _crossing(capabilities: Mapping[str, Json]) -> dict[str, Json]:
    """Return the capabilities of a client that are between it and its servers."""
    found: dict[str, Json] = {}
    for key in ("extensions", "experimental"):
        said = capabilities.get(key)
        if isinstance(said, dict):
            rest = {name: value for name, value in said.items() if name not in NOT_CROSSING}
            if rest:
                found[key] = rest
    return found


def _shown(call: AuthorizedQuestion) -> dict[str, Json]:
    params = dict(call.arguments)
    message = params.get("message")
    if isinstance(message, str):
        params["message"] = f"[{visible(call.server)}] {message}"
    return params


def _fits(answer: Mapping[str, Json], asked: Mapping[str, Json]) -> bool:
    """Whether an answer is well formed and holds no field that was not requested."""
    content, schema = answer.get("content"), asked.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if answer.get("action") not in _ACTIONS or not isinstance(content, dict | None):
        return False
    return not content or (isinstance(fields, dict) and content.keys() <= fields.keys())
