"""The auto-confirm engine, joined: its store, its reviewers, and its notices.

Imported only where `auto_confirm` is enabled: the database library alone takes longer to load than
the proxy takes to start.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.interaction import WorkContext
from ironcurtain_proxy.auto_confirm.engine.settings import HUMAN
from ironcurtain_proxy.auto_confirm.engine_knowledge import LazyStore
from ironcurtain_proxy.auto_confirm.engine_memory import (
    AbandonedReviewers,
    EngineParts,
    RevocableCalls,
    StoreLedger,
    warm,
)
from ironcurtain_proxy.auto_confirm.notifier import ApprovalTally, NoticeSender, Notifier, Summaries
from ironcurtain_proxy.auto_confirm.reviewer import AutoConfirm, SessionSituation
from ironcurtain_proxy.auto_confirm.reviewer_chain import (
    ReviewerChain,
    Seat,
    SessionReviewer,
    without_briefing,
)
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import (
    CallDialect,
    LineDialect,
    MakeDialect,
)
from ironcurtain_proxy.auto_confirm.reviewers.model import ANSWER_SCHEMA, ModelReviewer
from ironcurtain_proxy.auto_confirm.reviewers.process import (
    ProcessReviewer,
    ProcessSpec,
    launcher,
    redact,
)
from ironcurtain_proxy.auto_confirm.session_files import Windows
from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.config.auto_confirm import (
    PROVIDER_VARIABLE,
    AutoConfirmConfig,
    ReviewerForm,
)
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.llm.litellm_model import LitellmModel, LlmLog, parse_model_id
from ironcurtain_proxy.mailbox.answering import read_token
from ironcurtain_proxy.mailbox.messages import Credential
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.ports import Clock, Timeline
from ironcurtain_proxy.review.terminal import FirstReviewer, Panel

_Part: TypeAlias = ProcessReviewer | ModelReviewer | Mailbox
"""A task that runs for a reviewer."""


class EngineSurroundings(Struct, frozen=True, kw_only=True):
    """The parts that the engine is joined with."""

    clock: Clock
    environ: Mapping[str, str]
    people: Panel
    """The channel to people, for names that no reviewer has."""
    first: FirstReviewer | None = None
    timeline: Timeline | None = None
    """The timeline of the workspace, or None if no call can be undone."""


def assemble_engine(
    settings: Settings, config: AutoConfirmConfig, around: EngineSurroundings
) -> EngineParts:
    """Join the engine. Nothing is started, and no database is opened.

    Raises:
        ConfigurationError: a reviewer's token cannot be read.
    """
    clock = around.clock
    minutes = config.engine.escalation_timeout_minutes
    ledger = StoreLedger(
        store=LazyStore(lambda: open_store(config.store_url, settings.state_dir, clock)),
        clock=clock,
        windows=Windows(settings.state_dir / "windows"),
        timeout_minutes=minutes,
        session=settings.session,
        keep=timedelta(days=config.keep_days) if config.keep_days else None,
        state_dir=settings.state_dir,
    )
    notifier = Notifier(
        channels=config.notifications.channels,
        transport=NoticeSender(around.environ),
        summaries=_summaries(config, clock),
    )

    given_up = AbandonedReviewers(notifier, settings.session_dir)
    person = Seat(ask=without_briefing(around.people), is_reachable=around.people.is_reachable)
    seats: dict[str, Seat] = {HUMAN: person}
    parts: dict[str, _Part] = {}
    for spec in config.reviewers:
        seat, part = _seat(spec, settings, config, around, given_up.note)
        seats[spec.name] = seat or person
        if part is not None:
            parts[spec.name] = part
    processes = {name: one for name, one in parts.items() if isinstance(one, ProcessReviewer)}
    # The first reviewers start at once; a later one may never be needed.
    targets = config.engine.escalation_targets
    first = [processes[n] for n in {targets.high_risk, targets.medium_risk} & processes.keys()]
    chain = ReviewerChain(
        seats=seats,
        clock=clock,
        step_seconds=minutes * 60.0,
        on_step=ledger.passed_on,
        on_seen=ledger.seen,
        notify=notifier.notify,
    )
    return EngineParts(
        reviewer=AutoConfirm(
            settings=config.engine,
            situation=_situation(settings, config, around.environ),
            ledger=ledger,
            routes=chain,
            clock=clock,
            safeguards=_safeguards(settings, around.timeline),
            first=around.first,
            on_asked=partial(warm, first),
            on_approved=notifier.approved if notifier.channels else None,
        ),
        chain=chain,
        ledger=ledger,
        notifier=notifier,
        processes=tuple(processes.values()),
        models=tuple([one for one in parts.values() if isinstance(one, ModelReviewer)]),
        mailboxes=tuple([one for one in parts.values() if isinstance(one, Mailbox)]),
    )


def _safeguards(settings: Settings, timeline: Timeline | None) -> RevocableCalls | None:
    if settings.workspace is None or timeline is None:
        return None
    return RevocableCalls(workspace=settings.workspace, timeline=timeline)


def _situation(
    settings: Settings, config: AutoConfirmConfig, environ: Mapping[str, str]
) -> SessionSituation:
    said = config.context
    found = environ.get(PROVIDER_VARIABLE)
    return SessionSituation(
        session_type=config.session_type,
        workspace=settings.workspace,
        home=real(settings.home),
        required=WorkContext(
            directory=real(Path(said.directory)) if said.directory else None,
            environment=said.environment,
            branch=said.branch or None,
        ),
        environment={name: environ[name] for name in said.environment if name in environ},
        provider_mismatch=bool(said.provider) and said.provider != found,
    )


def _seat(
    spec: ReviewerForm,
    settings: Settings,
    config: AutoConfirmConfig,
    around: EngineSurroundings,
    give_up: Callable[[str], None],
) -> tuple[Seat | None, _Part | None]:
    """Return the place of a reviewer (None: the usual person's), and its task."""
    reviewer = config.engine.reviewer(spec.name)
    may_deny = reviewer is None or reviewer.may_deny
    session = spec.name if reviewer is None else reviewer.session or spec.name
    match spec.kind:
        case "human" if not spec.mailbox:
            return None, None
        case "human":
            mailbox = _mailbox(spec, settings, around.clock)
            ask = without_briefing(mailbox)
            return Seat(ask=ask, is_reachable=mailbox.is_reachable, may_deny=may_deny), mailbox
        case "session":
            mailbox = _mailbox(spec, settings, around.clock, _credential(spec))
            return Seat(
                ask=SessionReviewer(mailbox, redact).ask,
                is_reachable=mailbox.is_reachable,
                session=session,
                may_deny=may_deny,
            ), mailbox
        case "process":
            process = ProcessReviewer(
                ProcessSpec(
                    name=spec.name, command=spec.command, env=spec.env or {}, dialect=_dialect(spec)
                ),
                clock=around.clock,
                launch=launcher(settings.session_log.parent, settings.session_log),
                redact=redact,
                environ=around.environ,
                on_given_up=give_up,
            )
            return Seat(
                ask=process.ask,
                is_reachable=process.is_reachable,
                session=session,
                may_deny=may_deny,
            ), process
        case "model":
            model = _model(spec, settings, around)
            return Seat(
                ask=model.ask, is_reachable=model.is_reachable, session=spec.name, may_deny=may_deny
            ), model


def _dialect(spec: ReviewerForm) -> MakeDialect:
    match spec.protocol or "lines":
        case "lines":
            return LineDialect
        case "mcp":
            return partial(CallDialect, tool=spec.tool or "review")


def _credential(spec: ReviewerForm) -> Credential:
    who = f'auto_confirm.reviewers: session "{spec.name}"'
    if not spec.token_file:
        raise ConfigurationError(f"{who} has no token_file")
    try:
        return Credential(spec.name, read_token(Path(spec.token_file)))
    except ConfigurationError as error:
        raise ConfigurationError(f"{who}: {error}") from None


def _mailbox(
    spec: ReviewerForm, settings: Settings, clock: Clock, credential: Credential | None = None
) -> Mailbox:
    return Mailbox(
        MailboxSettings(
            directory=Path(spec.mailbox) if spec.mailbox else settings.mailbox_dir,
            assume_listener=True,
            sessions_dir=settings.sessions_dir,
            require_digest=settings.escalation.require_digest,
            credential=credential,
        ),
        clock,
    )


def _model(spec: ReviewerForm, settings: Settings, around: EngineSurroundings) -> ModelReviewer:
    said = settings.auto_approve
    access = settings.model_access(spec)
    return ModelReviewer(
        name=spec.name,
        model=LitellmModel(
            model_id=parse_model_id(spec.model_id or ""),
            api_key=access.api_key,
            api_base=access.api_base,
            answer_schema=ANSWER_SCHEMA,
        ),
        clock=around.clock,
        redact=redact,
        log=None if said.llm_log is None else LlmLog(said.llm_log),
    )


def _summaries(config: AutoConfirmConfig, clock: Clock) -> Summaries | None:
    minutes = config.notifications.summary_minutes
    if minutes == 0:
        return None
    target = config.engine.escalation_targets.high_risk
    return Summaries(ApprovalTally(target=target, clock=clock), minutes * 60.0)
