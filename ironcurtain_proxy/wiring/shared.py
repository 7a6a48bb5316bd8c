"""What the doors of one kernel have in common: the agent's, and that of its client's hooks.

The pins of a session are joined to its servers and its catalogue here, too.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.agent.asking import Introduction, introduction_of, shown_title, tool_usage
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings, end_process
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.managed import Bundle
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.downstream.eras import ServerDescription
from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue, pin_digest
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.jsonrpc.sending import Batch
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.model.server import Section
from ironcurtain_proxy.origins.book import OriginBook
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.pins.book import PINS_NAME, PinBook, PinnedServer, PinStore
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
    from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline
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
    is_wanted = settings.containment.undo or (config is not None and config.engine.enabled)
    return workspace_timeline(settings, clock) if is_wanted else None


# --- pins

LISTED_ANEW: Final[Mapping[str, tuple[Section, ...]]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("templates",),
}
"""The lists that are fetched again, before use, after a server's notification."""

_EVERY: Final = 0.5
"""Seconds between two looks for changes that a person has accepted."""

_MOST_MISSING: Final = 10
"""The most servers of which the agent reads why they did not start."""


def pin_store(state_dir: Path) -> PinStore:
    """Return the files of pins in a state directory."""
    return PinStore(state_dir / PINS_NAME)


def pinned_servers(settings: Settings) -> Mapping[str, PinnedServer]:
    """Return the pin settings of each configured server, by its name."""
    workspace = None if settings.workspace is None else str(settings.workspace)
    return {
        spec.name: PinnedServer(
            spec.name, pin_digest(spec, workspace), spec.pins or settings.pins, workspace
        )
        for spec in settings.servers
    }


def pins_of(settings: Settings, bundle: Bundle | None = None) -> PinBook:
    """Return the pins of a session, those of the fleet above the user's. Nothing is read yet."""
    fleet = None if bundle is None else bundle.directory / PINS_NAME
    store = PinStore(settings.state_dir / PINS_NAME, fleet)
    return PinBook(store=store, servers=pinned_servers(settings))


def pinned_introductions(
    servers: Mapping[str, ServerDescription], pins: PinBook, missing: list[str], *, are_all: bool
) -> Introduction:
    """Return the instructions for the agent: the proxy's own, and the accepted ones of servers.

    Args:
        servers: the started servers, by name.
        pins: what was accepted.
        missing: why others did not start.
        are_all: whether there are no others.
    """
    passed: dict[str, ServerDescription] = {}
    notes = [f"{one} Tell the user." for one in missing[:_MOST_MISSING]]
    for name, said in servers.items():
        info = said.info if pins.title(name, shown_title(said)) else {}
        instructions = said.instructions
        if not pins.instructions(name, instructions):
            instructions = ""
            notes.append(
                f"The instructions of the server {name} changed and are left out until the "
                "operator has accepted them. Tell the user."
            )
        passed[name] = ServerDescription(said.capabilities, instructions, info)
    return introduction_of("\n\n".join([tool_usage(), *notes]), passed, are_all=are_all)


async def follow_acceptance(
    pins: PinBook, catalogue: LiveCatalogue, changed: Callable[[], Awaitable[None]]
) -> None:
    """Apply the changes that a person accepts meanwhile, until cancelled."""
    while True:
        await anyio.sleep(_EVERY)
        servers = pins.changed_servers()
        for server in servers:
            pins.forget(server)
            catalogue.look_at_pins_again(server)
        if servers:
            await changed()
