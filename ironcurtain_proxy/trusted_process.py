"""The kernel in the process of a program that calls tools itself.

Policy, facts, reviewers, servers and audit log are those of the proxy, and so are its decisions: a
call goes through the same mediation. Only the agent's side is missing; the words of the replies are
the same.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from copy import deepcopy
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, assert_never

import anyio
import msgspec
import orjson
from msgspec import Struct

from ironcurtain_proxy.agent.replies import result_of
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.starting import tidy
from ironcurtain_proxy.errors import AgentError, ConfigurationError, KernelError
from ironcurtain_proxy.facts.live_catalogue import SEPARATOR, CataloguedTool
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.decision import in_record
from ironcurtain_proxy.model.operation import ProgressListener
from ironcurtain_proxy.model.reply import (
    Allowed,
    Answered,
    Failed,
    Refused,
    RefusedBy,
    Reply,
    Withheld,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Arguments, Json
from ironcurtain_proxy.own_process import SystemClock, say
from ironcurtain_proxy.review.terminal import CallbackReviewer, Channel, OnEscalation
from ironcurtain_proxy.sessions import forget_session, note_session
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.proxy import Proxy, assemble
from ironcurtain_proxy.wiring.reviewers import AddedChannels
from ironcurtain_proxy.wiring.serving import refuse_what_is_not_there

CallStatus: TypeAlias = Literal["success", "denied", "error"]
"""`denied`: it was not carried out. `error`: it was, or nearly, and failed."""


class ToolCallRequest(Struct, frozen=True, kw_only=True):
    """One call of a program."""

    server: str
    """The operator's name of the server."""
    tool: str
    arguments: Arguments = msgspec.field(default_factory=dict)


class ToolCallResponse(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    status: CallStatus
    result: Mapping[str, Json]
    """The raw `result`: the server's, with `isError` where it says so, or of our refusal. Empty
    if the server sent a JSON-RPC error."""
    error: Mapping[str, Json] | None = None
    """The server's JSON-RPC error."""
    rule: str = ""
    """The rule or invariant that allowed it, that denied it, or that asked for a reviewer."""
    allowed_by: str = ""
    """`kernel`: the policy alone. Else who approved: `human`, `reviewer:ID`, `grant:ID`. Empty: it
    was not allowed."""
    refused_by: RefusedBy | None = None
    """The kind of refusal, such as `policy`, `declined` or `held`, or None if the call was made."""


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool of a server, as a program lists it."""

    server: str
    """The operator's name of the server."""
    tool: str
    """The server's own name of the tool."""
    description: str
    """The server's words, which nobody has checked, or empty if there is none."""
    input_schema: Mapping[str, Json]
    """JSON Schema of the arguments; empty: the server sent none."""
    raw: Mapping[str, Json]
    """The whole object from the server's `tools/list`."""


_JSON_ALONE: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class TrustedProcess:
    """Decides, carries out and records the calls of the program it lives in.

    async with TrustedProcess(Settings.from_environment(), on_escalation=ask) as kernel:
        kernel.set_last_user_message("read the README")
        answer = await kernel.call_tool("fs", "read_file", {"path": "README.md"})
    """

    def __init__(
        self,
        settings: Settings | Mapping[str, str],
        config: Path | None = None,
        *,
        on_escalation: OnEscalation | None = None,
    ) -> None:
        """Read policy and servers; nothing is started yet.

        Args:
            settings: what the operator said; or the environment to read that from, which is left
                as it is.
            config: the configuration file, with an environment.
            on_escalation: is asked about escalations instead of the configured channels.

        Raises:
            ConfigurationError: something cannot be used.
        """
        if not isinstance(settings, Settings):
            settings = Settings.from_environment(settings, config)
        elif config is not None:
            raise ConfigurationError("settings and a configuration file: the settings hold it")
        self._settings = settings
        self._loaded = load_policy(self._settings)
        refuse_what_is_not_there(self._settings)
        self._environ = dict(settings.inherited)
        self._sandbox = find_sandbox(self._settings, self._environ, say)
        self._on_escalation = on_escalation
        self._message: UserMessage | None = None
        self._turns = count(1)
        self._proxy: Proxy | None = None
        self._exits = AsyncExitStack()

    def set_last_user_message(self, text: str) -> None:
        """Set the user's last message, the auto-approver's only evidence."""
        self._message = UserMessage(text, str(next(self._turns))) if text.strip() else None

    async def list_tools(self) -> tuple[OfferedTool, ...]:
        """Return the tools of all servers that have started, in the order of the configuration.

        What is listed may still be denied when it is called.

        Raises:
            KernelError: outside `async with`.
        """
        proxy = self._running()
        await proxy.catalogue.listing()
        return tuple([_offered(tool) for tool in proxy.catalogue.tools])

    async def call_tool(
        self, server: str, tool: str, arguments: Arguments | None = None
    ) -> ToolCallResponse:
        """Decide a call and, if it may go, carry it out.

        Raises:
            AgentError: the arguments are no JSON.
            KernelError: outside `async with`.
        """
        return await self.handle_tool_call(
            ToolCallRequest(server=server, tool=tool, arguments=arguments or {})
        )

    async def handle_tool_call(
        self, request: ToolCallRequest, on_progress: ProgressListener | None = None
    ) -> ToolCallResponse:
        """Make a call that is given as one value, with progress notifications.

        Raises:
            AgentError: the arguments are no JSON.
            KernelError: outside `async with`.
        """
        proxy = self._running()
        name = self._name(proxy, request)
        params: dict[str, Json] = {"name": name, "arguments": _as_sent(request)}
        return _response(await proxy.calls.handle(name, params, on_progress), name)

    def _running(self) -> Proxy:
        if self._proxy is None:
            raise KernelError("a TrustedProcess works inside `async with`")
        return self._proxy

    def _name(self, proxy: Proxy, request: ToolCallRequest) -> str:
        """Return the exposed name.

        With one server that is the tool's own, and no other server has it.
        """
        if request.server not in {spec.name for spec in self._settings.servers}:
            return f"{request.server}{SEPARATOR}{request.tool}"
        return proxy.catalogue.exposed(request.server, request.tool)

    async def __aenter__(self) -> Self:
        """Start the servers and open the audit log.

        Raises:
            ConfigurationError: something cannot be used, such as the mailbox.
            KernelError: it has been entered already.
        """
        if self._proxy is not None:
            raise KernelError("a TrustedProcess is entered once at a time")
        try:
            self._proxy = await self._start()
        except BaseException as error:
            # Nobody calls `__aexit__` then, and nothing that was started may be left running.
            await self.__aexit__(type(error), error, error.__traceback__)
            alone = _alone(error, None) if isinstance(error, BaseExceptionGroup) else None
            if alone is None:
                raise
            raise alone from None
        return self

    async def _start(self) -> Proxy:
        proxy = assemble(
            self._settings,
            self._loaded,
            self._environ,
            sandbox=self._sandbox,
            ways=AddedChannels(message=lambda: self._message, only=self._callback()),
            in_process=True,
        )
        for hold in proxy.holds:
            self._exits.callback(hold.release)
        self._exits.callback(tidy, self._settings.session_dir)
        note_session(self._settings, policy=self._loaded.version)
        self._exits.callback(forget_session, self._settings)
        self._exits.callback(proxy.audit.close)
        proxy.servers.start_processes()
        tasks = await self._exits.enter_async_context(anyio.create_task_group())
        self._exits.callback(tasks.cancel_scope.cancel)
        await tasks.start(proxy.run)
        return proxy

    def _callback(self) -> Channel | None:
        if self._on_escalation is None:
            return None
        return Channel(CallbackReviewer(self._on_escalation, SystemClock()), lambda: True)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        """End the servers; open questions are withdrawn."""
        self._proxy = None
        try:
            return await self._exits.__aexit__(exc_type, exc_val, exc_tb)
        except BaseExceptionGroup as group:
            # The program's own exception leaves the block unchanged, and a single one of ours
            # without its group.
            found = _alone(group, exc_val)
            if found is None:
                raise
            if found is exc_val:
                return False
            raise found from None


def _alone(
    group: BaseExceptionGroup[BaseException], body: BaseException | None
) -> BaseException | None:
    """Return the one exception in a group of groups, or None if there are several.

    Args:
        group: what left our tasks.
        body: the exception of the program's block, which may itself be a group.
    """
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and found is not body:
        if len(found.exceptions) > 1:
            return None
        found = found.exceptions[0]
    return found


def _as_sent(request: ToolCallRequest) -> Json:
    """Return a copy of the arguments: the program may change its own while somebody is asked."""
    try:
        copied: Json = orjson.loads(orjson.dumps(dict(request.arguments), option=_JSON_ALONE))
    except (TypeError, orjson.JSONDecodeError):
        raise AgentError(
            f"the arguments of {request.server}/{request.tool} are no JSON: hand in objects, "
            "arrays, texts, numbers, booleans and None"
        ) from None
    return copied


def _offered(found: CataloguedTool) -> OfferedTool:
    # The program's copy: the kernel judges calls by its own.
    raw = deepcopy(dict(found.definition.raw))
    description, schema = raw.get("description"), raw.get("inputSchema")
    return OfferedTool(
        server=found.server,
        tool=found.definition.name,
        description=description if isinstance(description, str) else "",
        input_schema=schema if isinstance(schema, dict) else {},
        raw=raw,
    )


def _response(reply: Reply, name: str) -> ToolCallResponse:
    match reply:
        case Answered(result=answer, allowed=allowed):
            status: CallStatus = "error" if _has_failed(answer) else "success"
            result = {} if answer.error is not None else result_of(reply, name)
            return _let_go(allowed, status=status, result=result, error=answer.error)
        case Failed(allowed=allowed):
            return _let_go(allowed, status="error", result=result_of(reply, name))
        case Refused(ground=ground, by=by):
            return ToolCallResponse(
                status="denied", result=result_of(reply, name), rule=ground.rule, refused_by=by
            )
        case Withheld(ground=ground):
            return ToolCallResponse(
                status="denied", result=result_of(reply, name), rule=ground.rule
            )
        case _:
            assert_never(reply)


def _has_failed(answer: ToolResult) -> bool:
    return answer.error is not None or (answer.result or {}).get("isError") is True


def _let_go(
    allowed: Allowed | None,
    *,
    status: CallStatus,
    result: Mapping[str, Json],
    error: Mapping[str, Json] | None = None,
) -> ToolCallResponse:
    return ToolCallResponse(
        status=status,
        result=result,
        error=error,
        rule="" if allowed is None else allowed.rule,
        allowed_by="" if allowed is None else in_record(allowed.by),
    )
