"""Who is asked about an escalation, joined from the settings."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskStatus

from ironcurtain_proxy.config.extras import lacks
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.review_settings import ChannelName
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.mailbox.grants_command import GrantsAction
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.mailbox.user_message import ContextFile, MessageSource, is_pty_session
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.review.channel_order import Channel, Panel
from ironcurtain_proxy.review.open_questions import Desk
from ironcurtain_proxy.wiring.persistence import persisted_grants

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_approver.reviewer import AutoApprover
    from ironcurtain_proxy.grants.kept import PersistedGrants
    from ironcurtain_proxy.wiring.auto_confirm import EngineParts

_log = logging.getLogger(__name__)

_CLOSE: Final = 1.0
"""Seconds for the model's connections to be closed."""


@dataclass(slots=True, kw_only=True)
class Reviewers:
    """The desk and those behind it."""

    desk: Desk
    panel: Panel
    mailbox: Mailbox
    grants: GrantBook
    persisted: "PersistedGrants | None"
    """What keeps grants; None: they end with the session."""
    notice: str
    """What the operator should know at the start, one thing a line; empty: nothing."""
    auto_approver: "AutoApprover | None"
    order: tuple[ChannelName, ...]
    on_clear: Callable[[], object] = lambda: None
    """Ends what rests on grants besides: the runs of approved plans."""
    engine: "EngineParts | None" = None
    """The auto-confirm engine, if it is on."""
    places: dict[ChannelName, Channel] = field(default_factory=dict)

    def add(self, name: ChannelName, channel: Channel) -> None:
        """Make a way to a reviewer known; it is used if the operator named it."""
        self.places[name] = replace(channel, name=name)
        self.panel.channels[:] = [self.places[n] for n in self.order if n in self.places]

    def replace(self, channel: Channel) -> None:
        """Ask through this way alone, whatever the settings say."""
        self.order = ()
        self.panel.channels[:] = [channel]

    def is_reachable(self) -> bool:
        """Whether anybody seems to be there who decides what nothing else decides."""
        return self.panel.is_reachable() or (
            self.engine is not None and self.engine.chain.is_reachable()
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own their tasks until cancelled; open questions are withdrawn then."""
        self._restore_grants()
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.mailbox.run)
                await tasks.start(self.desk.run)
                if self.auto_approver is not None:
                    tasks.start_soon(self.auto_approver.warm)
                if self.engine is not None:
                    await tasks.start(self.engine.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            await self.keep_grants(at_once=True)
            if self.auto_approver is not None:
                with anyio.move_on_after(_CLOSE, shield=True):
                    await self.auto_approver.aclose()

    def _restore_grants(self) -> None:
        for line in self.notice.splitlines():
            _log.warning("%s", line)
        for remembered in () if self.persisted is None else self.persisted.load():
            self.grants.restore(remembered)

    def take_back_grants(self) -> None:
        """Forget what somebody took out of the file of kept grants meanwhile."""
        if self.persisted is not None:
            for identifier in self.persisted.withdrawn():
                self.grants.revoke(identifier)

    async def keep_grants(self, *, at_once: bool = False) -> None:
        """Write down what changed, where grants are kept; `at_once`: uses, too."""
        if self.persisted is not None:
            for gone in await self.persisted.keep(self.grants.list(), at_once=at_once):
                self.grants.revoke(gone)


def assemble_reviewers(
    settings: Settings,
    grants: GrantBook,
    clock: Clock,
    environ: Mapping[str, str],
    message: MessageSource | None = None,
    policy_version: str = "",
) -> Reviewers:
    """Join them. Starts nothing.

    Args:
        settings: what the operator said.
        grants: what reviewers chose to remember.
        clock: the time.
        environ: tells whether the agent runs in a terminal of its own.
        message: the user's last message, where it does not come from a file.
        policy_version: what is kept is void under another.

    Raises:
        ConfigurationError: a setting needs a library that is not installed, or cannot be used.
    """
    missing = list(lacks(settings))
    for lack in missing:
        if lack.stops:
            raise ConfigurationError(str(lack))

    async def command(action: GrantsAction, identifier: str | None) -> None:
        if action == "clear":
            grants.clear()
            reviewers.on_clear()
        elif identifier is not None:
            grants.revoke(GrantId(identifier))
        await reviewers.keep_grants(at_once=True)
        mailbox.publish_grants(settings.session, described(grants))

    mailbox = Mailbox(
        MailboxSettings(
            directory=settings.mailbox_dir,
            assume_listener=settings.escalation_dir is not None,
            sessions_dir=settings.state_dir / "sessions",
            require_digest=settings.escalation.require_digest,
        ),
        clock,
        command,
    )
    source = message or ContextFile(
        directory=settings.mailbox_dir, clock=clock, is_pty=is_pty_session(environ)
    )
    auto_approver = None if missing else _auto_approver(settings, source, clock)
    panel = Panel([], auto_approver)
    persisted, notice = persisted_grants(settings, policy_version, clock)
    notice = "\n".join([*map(str, missing), *([notice] if notice else [])])
    engine = _engine(settings, clock, environ, panel)
    hold_after = settings.escalation.hold_after_seconds if holds(settings) else None
    reviewers = Reviewers(
        desk=Desk(
            panel if engine is None else engine.reviewer,
            clock,
            hold_after=hold_after,
            aftermath=None if engine is None else engine.reviewer,
        ),
        panel=panel,
        engine=engine,
        mailbox=mailbox,
        grants=grants,
        persisted=persisted,
        notice=notice,
        auto_approver=auto_approver,
        order=settings.escalation.channels,
    )
    reviewers.add("mailbox", Channel(mailbox, mailbox.is_reachable))
    return reviewers


def holds(settings: Settings) -> bool:
    """Whether calls are held after a while, rather than waiting to the end."""
    match settings.escalation.mode:
        case "wait":
            return False
        case "held":
            return True
        case "auto":
            # Whoever named the directory waits for answers as the original did.
            return settings.escalation_dir is None


def described(grants: GrantBook) -> list[Mapping[str, Json]]:
    """The grants of the session, for `grants list`."""
    return [
        {
            "id": remembered.grant.id,
            "description": remembered.grant.pattern.description,
            "createdAt": remembered.grant.created.isoformat(),
            "uses": remembered.uses,
            "lastUsed": _text(remembered.last_used),
            "expiresAt": _text(remembered.grant.expires),
            "source": remembered.grant.source,
        }
        for remembered in grants.list()
    ]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _engine(
    settings: Settings, clock: Clock, environ: Mapping[str, str], panel: Panel
) -> "EngineParts | None":
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return None
    # Off unless switched on, and its database library is slow to load.
    from ironcurtain_proxy.wiring.auto_confirm import (  # noqa: PLC0415
        Surroundings,
        assemble_engine,
    )

    # The same people, asked after the engine and not before: the auto-approver has its own turn.
    people = Panel(panel.channels)
    around = Surroundings(clock=clock, environ=environ, people=people, first=panel.first)
    return assemble_engine(settings, config, around)


def _auto_approver(
    settings: Settings, message: MessageSource, clock: Clock
) -> "AutoApprover | None":
    said = settings.auto_approve
    if not said.enabled:
        return None
    # Off unless switched on: most sessions start without it.
    from ironcurtain_proxy.auto_approver.reviewer import (  # noqa: PLC0415
        AutoApprover,
        AutoApproverConfig,
        create_model,
    )
    from ironcurtain_proxy.auto_approver.target_call import Surroundings  # noqa: PLC0415
    from ironcurtain_proxy.llm.log import LlmLog  # noqa: PLC0415

    config = AutoApproverConfig(
        enabled=said.enabled,
        model_id=said.model_id,
        api_base=said.api_base,
        deadline_seconds=said.deadline_seconds,
        outages=said.max_outages,
        approvals_per_minute=said.max_per_minute,
        target_check=said.target_check,
    )
    model = create_model(config, said.api_key)
    if model is None:
        return None
    return AutoApprover(
        model=model,
        config=config,
        message=message,
        around=Surroundings(home=real(settings.home), workspace=settings.workspace),
        clock=clock,
        log=None if said.llm_log is None else LlmLog(said.llm_log),
    )
