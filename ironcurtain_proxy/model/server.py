"""A server behind the proxy, as the operator configured it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ironcurtain_proxy.model.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How one downstream server is started."""

    name: str
    """The operator's name, which the agent sees."""
    annotations: str
    """The server's name in policy and annotations."""
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets from `SERVER_CREDENTIALS`: added to `env`, masked in the session log."""
    cwd: str | None = None
    """Absolute; None: a directory of its own in the session's state."""
    sandbox: Mapping[str, Json] | bool | None = None
    """False: the server runs unconfined. None: the defaults hold. Read by `sandbox`."""
    allowed_domains: tuple[str, ...] = ()
    """`sandbox.network.allowedDomains`, also the allowlist of the policy's domain gate."""
    stateful: bool = False
    """The server keeps state between calls, so no second instance can carry out one of them."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server describes it: untrusted, passed on unchanged."""

    server: str
    name: str
    raw: Mapping[str, Json]
    """The whole object from `tools/list`."""

    @property
    def input_schema(self) -> Json:
        """The schema, or None if the server sent none."""
        return self.raw.get("inputSchema")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ToolResult:
    """A server's answer: exactly one of `result` and `error` is set.

    Large results are counted while they are in memory, by weak references.
    """

    result: Mapping[str, Json] | None = None
    """The raw `result` object, passed back untouched."""
    error: Mapping[str, Json] | None = None
    """The raw JSON-RPC `error` object."""
    refused_host: str = field(default="", compare=False)
    """The host that the sandbox blocked, according to the answer; empty: none."""
    written: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """Of a large result, its compact JSON, written once for the digest and the agent. A copy with
    another result has none."""

    def with_written(self, written: bytes | None) -> "ToolResult":
        """A copy of the result with its JSON."""
        object.__setattr__(self, "written", written)
        return self
