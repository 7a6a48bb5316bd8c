"""The shape of the configuration file. A later section is one class and one line here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ironcurtain_proxy.administration.shapes import Given, Shape

SandboxPolicy: TypeAlias = Literal["warn", "enforce"]
"""What becomes of a sandboxed server where no sandbox can be had: run and say so, or refuse."""

FsyncMode: TypeAlias = Literal["group", "always"]
"""When records reach the disk: within 100 ms in groups, or each before it counts as written."""

_Text: TypeAlias = Annotated[str, Field(min_length=1)]
_Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class AuditRedactionShape(Shape):
    """`auditRedaction`."""

    enabled: Given[bool] = None


class CircuitBreakerShape(Shape):
    """`circuitBreaker`."""

    threshold: Given[Annotated[int, Field(ge=1, le=1_000_000)]] = None
    window_seconds: Given[_Seconds] = None


class SettingsShape(Shape):
    """The whole file. Whatever is left out has a default in `settings`."""

    mcp_servers: Given[dict[str, object]] = None
    mcp_servers_file: Given[_Text] = None
    generated_dir: Given[_Text] = None
    tool_annotations_dir: Given[_Text] = None
    allowed_directory: Given[_Text] = None
    protected_paths: Given[list[_Text]] = None
    container_workspace_dir: Given[_Text] = None
    escalation_dir: Given[_Text] = None
    escalation_timeout_seconds: Given[Annotated[int, Field(ge=1, le=86_400)]] = None
    audit_log_path: Given[_Text] = None
    audit_redaction: AuditRedactionShape = Field(default_factory=AuditRedactionShape)
    audit_fsync: Given[FsyncMode] = None
    audit_write_deadline_seconds: Given[_Seconds] = None
    audit_max_bytes: Given[Annotated[int, Field(ge=65_536)]] = None
    session_log_path: Given[_Text] = None
    sandbox_policy: Given[SandboxPolicy] = None
    server_filter: Given[list[_Text]] = None
    server_credentials: Given[dict[str, dict[str, str]]] = None
    max_message_bytes: Given[Annotated[int, Field(ge=4096, le=1 << 31)]] = None
    circuit_breaker: CircuitBreakerShape = Field(default_factory=CircuitBreakerShape)
