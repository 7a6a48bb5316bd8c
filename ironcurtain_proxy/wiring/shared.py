"""What the doors of one kernel have in common: the agent's, and that of its client's hooks."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings, end_process
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.jsonrpc.batch import Batch
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.origins.book import OriginBook
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.wiring.call_facts import origin_book
from ironcurtain_proxy.wiring.containment import workspace_timeline
from ironcurtain_proxy.wiring.reviewers import (
    AddedChannels,
    Reviewers,
    SignatoriesInForce,
    assemble_reviewers,
    heard,
    signed_answers,
)

if TYPE_CHECKING:
    from ironcurtain_proxy.snapshots.timeline.workspace_timeline import WorkspaceTimeline
    from ironcurtain_proxy.telemetry import Telemetry


class Shared(Struct, frozen=True, kw_only=True):
    """What the doors of one kernel have in common."""

    session: str
    batch: Batch
    audit: AuditLog
    telemetry: "Telemetry | None"
    """The telemetry, or None if no spans and metrics are sent."""
    timeline: "WorkspaceTimeline | None"
    """The timeline, or None if no call can be taken back."""
    approvals: Approvals
    closing: list[Callable[[], None]]
    """Closes what an approval had opened, once one no longer holds."""
    breaker: Breaker
    origins: OriginBook
    named: SignatoriesInForce
    signed: SignedAnswers
    reviewers: Reviewers


def shared_parts(
    settings: Settings,
    loaded: LoadedPolicy,
    environ: Mapping[str, str],
    ways: AddedChannels,
    audit: AuditLog,
    batch: Batch,
) -> Shared:
    """Join what the doors share. Starts nothing.

    Args:
        settings: what the operator said.
        loaded: the policy.
        environ: ours.
        ways: the ways to reviewers besides the mailbox.
        audit: the log.
        batch: of its records, and of the pipes.
    """
    clock = SystemClock()
    closing: list[Callable[[], None]] = []

    def close() -> None:
        for one in closing:
            one()

    approvals = Approvals(GrantBook(close, loaded.revoked_grants), BudgetBook())
    named = SignatoriesInForce(loaded, settings.home)
    signed, timeline = signed_answers(named, clock, environ), _timeline(settings, clock)
    ways = replace(ways, timeline=timeline, signed=signed)
    return Shared(
        session=settings.session,
        batch=batch,
        audit=audit,
        telemetry=telemetry_of(settings),
        timeline=timeline,
        approvals=approvals,
        closing=closing,
        breaker=Breaker(settings.breaker.threshold, settings.breaker.window_seconds),
        origins=origin_book(settings, heard(ways, settings, clock, environ), clock),
        named=named,
        signed=signed,
        reviewers=assemble_reviewers(settings, approvals, clock, environ, loaded, ways),
    )


def open_log(settings: Settings, batch: Batch, *, in_process: bool) -> AuditLog:
    """Open the audit log."""
    return AuditLog.open(
        settings.audit.path,
        LogSettings(
            redaction=settings.audit.redact,
            fsync=settings.audit.fsync,
            write_deadline=settings.audit.write_deadline_seconds,
            max_bytes=settings.audit.max_bytes,
            door="process" if in_process else "http" if settings.is_session_named else "mcp",
        ),
        on_hang=None if in_process else end_process,
        batch=batch,
        is_shared=settings.is_session_named,
    )


def telemetry_of(settings: Settings) -> "Telemetry | None":
    """Return the sender of spans and metrics, or None if telemetry is off.

    Raises:
        ConfigurationError: its library is not installed.
    """
    if not settings.telemetry.enabled:
        return None
    require("otel", "telemetry")
    # Off unless switched on, and long to import.
    from ironcurtain_proxy.telemetry import Telemetry  # noqa: PLC0415

    return Telemetry.to_collector(settings.telemetry.endpoint)


def _timeline(settings: Settings, clock: SystemClock) -> "WorkspaceTimeline | None":
    config = settings.auto_confirm
    if not settings.containment.undo and (config is None or not config.engine.enabled):
        return None
    return workspace_timeline(settings, clock)
