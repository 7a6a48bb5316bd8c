"""A server behind the proxy, as the operator configured it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.pinning import PinMode
from ironcurtain_proxy.model.policy import AskKind
from ironcurtain_proxy.model.remote import RemoteEndpoint

BuiltIn: TypeAlias = Literal["shell"]
"""`shell`: our own shell, whose commands have views of their own."""


class ResultRules(Struct, frozen=True, kw_only=True):
    """The changes of a server's answers on their way to the agent."""

    clean: bool = False
    """Escapes of terminals and invisible characters are taken out."""
    redact_secrets: bool = False
    """Secrets are masked."""


class ShownTools(Struct, frozen=True, kw_only=True):
    """The tools of a server that exist for the proxy and the agent, by patterns of their names."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    """Patterns of what is left out, whatever `allow` says."""

    def has(self, name: str) -> bool:
        """Return whether a tool is shown."""
        return _matches(name, self.allow) and not _matches(name, self.deny)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(_expression(one), name, re.DOTALL) for one in patterns)


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The start of one downstream server, or its address."""

    name: str
    """The operator's name, which the agent sees."""
    annotations: str
    """The server's name in policy and annotations."""
    command: str
    """The program; empty if the server is reached over HTTP."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets from `SERVER_CREDENTIALS`: added to `env`, masked in the session log."""
    cwd: str | None = None
    """Absolute; None: a directory of its own in the session's state."""
    sandbox: Mapping[str, Json] | bool | None = None
    """The sandbox as configured. False: the server runs unconfined. None: the defaults hold. Read
    by `sandbox`."""
    allowed_domains: tuple[str, ...] = ()
    """`sandbox.network.allowedDomains`, also the allowlist of the policy's domain gate."""
    stateful: bool = False
    """The server keeps state between calls, so no second instance can carry out one of them."""
    description: str = ""
    ask: tuple[AskKind, ...] = ()
    """The questions of its own that the server may put to the user."""
    ask_about_secrets: bool = False
    """Calls that would send it a secret need a person."""
    results: ResultRules = field(default_factory=ResultRules)
    tools: ShownTools = field(default_factory=ShownTools)
    pins: PinMode | None = None
    """The treatment of changed descriptions; None: the setting for all servers holds."""
    builtin: BuiltIn | None = None
    """The server of our own that it is; `command` starts it. None: it is somebody else's."""
    remote: RemoteEndpoint | None = None
    """The address over HTTP; `sandbox` is then False. None: the server is started here."""

    @property
    def place(self) -> str:
        """The command, or the host of the server, in words for the operator."""
        if self.builtin is not None:
            return "our own"
        return self.command if self.remote is None else self.remote.host


class ToolDefinition(Struct, frozen=True):
    """A tool as its server describes it: untrusted, passed on unchanged."""

    server: str
    name: str
    raw: Mapping[str, Json]
    """The whole object from `tools/list`."""

    @property
    def input_schema(self) -> Json:
        """The schema, or None if the server sent none."""
        return self.raw.get("inputSchema")


class ToolResult(Struct, frozen=True, weakref=True):
    """A server's answer: exactly one of `result` and `error` is set.

    Large results are counted while they are in memory, by weak references.
    """

    result: Mapping[str, Json] | None = None
    """The raw `result` object, passed back untouched."""
    error: Mapping[str, Json] | None = None
    """The raw JSON-RPC `error` object."""
    refused_host: str = ""
    """The host that the sandbox blocked, according to the answer; empty: none."""
    view: str = ""
    """The view of our own shell whose changes this answer speaks of; empty: none."""
    written: bytes | None = None
    """The compact JSON of the result, written once for the digest and the agent; None: it is not
    written yet."""
    digest: str | None = None
    """SHA-256 of `written` in hexadecimal; None: it is not known yet."""

    @property
    def has_failed(self) -> bool:
        """Whether the server says that the call failed."""
        return self.result is None or self.result.get("isError") is True

    def with_result(self, result: Mapping[str, Json], refused_host: str) -> "ToolResult":
        """A copy with another result, whose JSON is not written yet."""
        return ToolResult(result=result, refused_host=refused_host, view=self.view)
