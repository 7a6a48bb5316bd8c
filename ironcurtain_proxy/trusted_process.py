"""The same kernel without a wire: for a program that calls tools itself.

Policy, facts, reviewers, servers and audit log are those of the proxy, and so are its decisions: a
call goes through the same mediation. Only the agent's side is missing; the words of the replies are
the same.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import anyio

from ironcurtain_proxy.agent.replies import words
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.downstream.working_directory import tidy
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.mailbox.user_message import UserMessage
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, Reply, Withheld
from ironcurtain_proxy.ports import ProgressListener
from ironcurtain_proxy.review.callback import CallbackReviewer, OnEscalation
from ironcurtain_proxy.review.channel_order import Channel
from ironcurtain_proxy.wiring.clocks import SystemClock
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.operator_log import say
from ironcurtain_proxy.wiring.proxy import Proxy, assemble, state_of
from ironcurtain_proxy.wiring.serving import refuse_what_is_not_there

CallStatus: TypeAlias = Literal["success", "denied", "error"]
"""`denied`: it was not carried out. `error`: it was, or nearly, and failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRequest:
    """One call of a program."""

    server: str
    """The operator's name of the server."""
    tool: str
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResponse:
    """What became of it."""

    status: CallStatus
    result: Mapping[str, Json]
    """The raw `result` of the server, or of our refusal; empty if the server sent an error."""
    error: Mapping[str, Json] | None = None
    """The server's JSON-RPC error."""
    rule: str = ""
    """Why it was denied, by the name of the rule or invariant."""


class TrustedProcess:
    """Decides, carries out and records the calls of the program it lives in.

    async with TrustedProcess(os.environ, on_escalation=ask) as kernel:
        kernel.set_last_user_message("read the README")
        answer = await kernel.handle_tool_call(ToolCallRequest(server="fs", tool="read_file"))
    """

    def __init__(
        self,
        environ: MutableMapping[str, str],
        config: Path | None = None,
        *,
        on_escalation: OnEscalation | None = None,
    ) -> None:
        """Read all configuration; nothing is started yet.

        Args:
            environ: the settings, as the proxy takes them. Secrets are taken out of it.
            config: the configuration file.
            on_escalation: is asked about escalations instead of the configured channels.

        Raises:
            ConfigurationError: something cannot be used.
        """
        self._settings = load_settings(environ, config)
        self._loaded = load_policy(self._settings)
        refuse_what_is_not_there(self._settings)
        self._environ = dict(environ)
        self._sandbox = find_sandbox(self._settings, self._environ, say)
        self._on_escalation = on_escalation
        self._message: UserMessage | None = None
        self._turns = count(1)
        self._proxy: Proxy | None = None
        self._exits = AsyncExitStack()

    def set_last_user_message(self, text: str) -> None:
        """What the user said last: the auto-approver's only evidence. Replaces what was before."""
        self._message = UserMessage(text, str(next(self._turns))) if text.strip() else None

    async def handle_tool_call(
        self, request: ToolCallRequest, on_progress: ProgressListener | None = None
    ) -> ToolCallResponse:
        """Decide a call and, if it may go, carry it out.

        Raises:
            KernelError: outside `async with`.
        """
        proxy = self._proxy
        if proxy is None:
            raise KernelError("a TrustedProcess works inside `async with`")
        name = proxy.catalogue.exposed(request.server, request.tool)
        params: dict[str, Json] = {"name": name, "arguments": dict(request.arguments)}
        return _response(await proxy.handle(name, params, on_progress), name)

    async def __aenter__(self) -> Self:
        """Start the servers and open the audit log."""
        proxy = assemble(
            self._settings,
            self._loaded,
            self._environ,
            sandbox=self._sandbox,
            message=lambda: self._message,
            in_process=True,
        )
        for hold in proxy.holds:
            self._exits.callback(hold.release)
        self._exits.callback(tidy, state_of(self._settings))
        self._exits.callback(proxy.audit.close)
        if self._on_escalation is not None:
            proxy.reviewers.replace(
                Channel(CallbackReviewer(self._on_escalation, SystemClock()), lambda: True)
            )
        proxy.servers.start_processes()
        tasks = await self._exits.enter_async_context(anyio.create_task_group())
        self._exits.callback(tasks.cancel_scope.cancel)
        await tasks.start(proxy.run)
        self._proxy = proxy
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        """End the servers; open questions are withdrawn."""
        self._proxy = None
        return await self._exits.__aexit__(exc_type, exc_val, exc_tb)


def _response(reply: Reply, name: str) -> ToolCallResponse:
    match reply:
        case Answered(result=answer) if answer.error is not None:
            return ToolCallResponse(status="error", result={}, error=answer.error)
        case Answered(result=answer):
            failed = (answer.result or {}).get("isError") is True
            status: CallStatus = "error" if failed else "success"
            return ToolCallResponse(status=status, result=words(reply, name))
        case Failed():
            return ToolCallResponse(status="error", result=words(reply, name))
        case Refused(ground=ground) | Withheld(ground=ground):
            return ToolCallResponse(status="denied", result=words(reply, name), rule=ground.rule)
