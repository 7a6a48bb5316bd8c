"""The reviewers of escalations, joined from the settings."""

import logging
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.config.extras import lacks, require
from ironcurtain_proxy.config.policy.policy_file import Basis
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.layers import PRINCIPAL_VARIABLE, STATE_DIRECTORY, real
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.settings import ChannelName, Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.live_catalogue import server_digest
from ironcurtain_proxy.facts.repositories import repository_of
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.mailbox.session_state import (
    ContextFile,
    GrantsAction,
    MessageSource,
    is_pty_session,
)
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.model.escalation import FOREVER
from ironcurtain_proxy.model.signing import NO_SIGNATORIES, ReviewerKey, Signatories, SignedAnswer
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import machine_id
from ironcurtain_proxy.ports import AnswerJudge, Clock, Reviewer, Timeline
from ironcurtain_proxy.review.open_questions import (
    NoticeWay,
    OpenQuestions,
    WaitingNotices,
    desktop,
    ntfy,
    webhook,
)
from ironcurtain_proxy.review.terminal import Channel, Panel
from ironcurtain_proxy.sandbox.installed import beyond_agents

if TYPE_CHECKING:
    from ironcurtain_proxy.config.policy.reviewers_file import ReviewersFile
    from ironcurtain_proxy.grants.kept import PersistedGrants
    from ironcurtain_proxy.signing import Counters


def grant_ending(settings: Settings) -> str:
    """Return the end of a remembered approval in words, where no `ttlSeconds` ends it sooner."""
    said = settings.overlay.grants
    lasts = said.persist and said.scope != "session"
    if not lasts or (said.scope == "project" and settings.workspace is None):
        return "until this session ends"
    days = f"for {said.expires_days} day{'' if said.expires_days == 1 else 's'}"
    return f"{days} in this project" if said.scope == "project" else days


def patience(settings: Settings) -> timedelta:
    """Return the time for reviewers: with the engine, for a target and then for its fallback."""
    if settings.escalation.wait_until_answered:
        return FOREVER
    config = settings.auto_confirm
    if config is not None and config.engine.enabled:
        return timedelta(minutes=2 * config.engine.escalation_timeout_minutes)
    return timedelta(seconds=settings.escalation_timeout_seconds)


def grant_ttl(settings: Settings) -> timedelta | None:
    """Return the time for which a remembered approval holds, or None if as long as the session."""
    seconds = settings.overlay.grants.ttl_seconds
    return timedelta(seconds=seconds) if seconds else None


def signed_answers(
    named: "SignatoriesInForce", clock: Clock, environ: Mapping[str, str]
) -> SignedAnswers:
    """Return what decides about signed answers, by the persons that `reviewers.json` names.

    Raises:
        ConfigurationError: there is such a file, and the library that checks signatures is not.
    """
    counters = cache(partial(_counters, named.home / STATE_DIRECTORY / "passkey-counters.json"))
    if named.path is not None and is_there(named.path):
        require("fleet", str(named.path))
        # Before the first question: what is read later may be an answer to that one, and a file
        # that is removed meanwhile would be taken for none.
        counters()
        named()
    return SignedAnswers(
        clock=clock,
        signatories=named,
        verify=_is_signed,
        has_grown=lambda answer, asked, now: counters().has_grown(answer, asked, now),
        machine=machine_id(),
        requesters=frozenset({_user(), environ.get(PRINCIPAL_VARIABLE, "")} - {""}),
    )


class SignatoriesInForce:
    """Gives what `reviewers.json` says. Few have the file: for others its reader is not loaded."""

    def __init__(self, loaded: LoadedPolicy, home: Path) -> None:
        self.home = home
        self._file: ReviewersFile | None = None
        self.follow(loaded)

    def follow(self, loaded: LoadedPolicy) -> None:
        """Take another policy over: where the file is now, and which keys the fleet revoked."""
        files = loaded.files
        self.path = files.reviewers
        self._revoked = frozenset() if files.managed is None else files.managed.revoked_keys

    def __call__(self) -> Signatories:
        """Return it, as it is at this moment."""
        if self._file is None:
            if self.path is None or not is_there(self.path):
                return NO_SIGNATORIES
            from ironcurtain_proxy.config.policy.reviewers_file import ReviewersFile  # noqa: PLC0415

            self._file = ReviewersFile(path=self.path, home=self.home)
        self._file.path, self._file.revoked = self.path or self._file.path, self._revoked
        return self._file.now()


def _is_signed(key: ReviewerKey, answer: SignedAnswer) -> bool:
    from ironcurtain_proxy.signing import is_signed  # noqa: PLC0415  as above

    return is_signed(key, answer)


def _counters(path: Path) -> "Counters":
    from ironcurtain_proxy.signing import Counters  # noqa: PLC0415  as above

    return Counters(path)


def _user() -> str:
    """Return the name of the user whom the proxy runs as, or the number where it has no name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())


def basis_in(settings: Settings, basis: Basis) -> Callable[[str, str], str]:
    """Return a function that digests all that a policy says of a server's tool."""
    names = {spec.name: spec.annotations for spec in settings.servers}
    return lambda server, tool: basis.digest(names.get(server, ""), tool, settings.workspace)


def persisted_grants(
    settings: Settings, loaded: LoadedPolicy, clock: Clock
) -> "tuple[PersistedGrants | None, str]":
    """Return the keeper of grants, or None; and a notice for the operator, if there is one.

    Args:
        settings: the operator's settings.
        loaded: the policy that is enforced.
        clock: the time.
    """
    said = settings.overlay.grants
    if not said.persist:
        return None, ""
    if said.scope == "session":
        return None, (
            "grants.persist is enabled, but its scope is session: nothing is kept; "
            "set grants.persist.scope to project or user"
        )
    if said.scope == "project" and settings.workspace is None:
        return None, "grants.persist has the scope project, but no workspace: nothing is kept"
    # Off unless switched on: most sessions start without it.
    from ironcurtain_proxy.facts.client_tools import client_servers  # noqa: PLC0415
    from ironcurtain_proxy.grants.kept import KEPT_NAME, Circumstances, GrantsFile, PersistedGrants  # noqa: PLC0415

    workspace = None if settings.workspace is None else str(settings.workspace)
    repository = None if workspace is None else repository_of(workspace)
    # Those of the hooks of the agent's client may be kept here, too.
    settings = replace(settings, servers=(*client_servers(workspace), *settings.servers))
    here = Circumstances(
        scope=said.scope,
        workspace=settings.workspace,
        repository=None if repository is None else RealPath.from_text(repository),
        policy_version=loaded.version,
        basis=basis_in(settings, Basis(loaded.policy, loaded.annotations)),
        servers={spec.name: server_digest(spec, workspace) for spec in settings.servers},
        lifetime=timedelta(days=said.expires_days),
    )
    return PersistedGrants(GrantsFile(settings.state_dir / KEPT_NAME), here, clock), ""


if TYPE_CHECKING:
    from ironcurtain_proxy.auto_approver.reviewer import AutoApprover
    from ironcurtain_proxy.auto_confirm.engine_memory import EngineParts

_log = logging.getLogger(__name__)

_CLOSE: Final = 1.0
"""Seconds for closing the model's connections."""


class AddedChannels(Struct, frozen=True, kw_only=True):
    """The channels and sources that the assembling program adds."""

    more: Mapping[ChannelName, Channel] = field(default_factory=dict)
    """The channels besides the mailbox; each is used if the operator named it."""
    last: Channel | None = None
    """The channel that is asked after all that the settings name, or None if there is none."""
    around: Callable[[Reviewer], Reviewer] | None = None
    """Put around the reviewer of each channel that the settings name, or None if nothing is."""
    only: Channel | None = None
    """The only channel, whatever the settings say; None: the settings choose."""
    message: MessageSource | None = None
    """The user's last message, where it does not come from a file."""
    signed: AnswerJudge | None = None
    """Decides about signed answers, or None if none counts."""
    timeline: Timeline | None = None
    """The timeline of the workspace, or None if the engine approves nothing that must be
    undoable."""


class Reviewers(Struct, frozen=True, kw_only=True):
    """The open questions, and their reviewers."""

    questions: OpenQuestions
    panel: Panel
    mailbox: Mailbox
    notices: WaitingNotices
    grants: SessionGrants
    notice: str
    """Notices for the operator at the start, one on each line, or empty if there is none."""
    auto_approver: "AutoApprover | None"
    engine: "EngineParts | None"
    """The auto-confirm engine, if it is on."""
    is_whole: bool = True
    """Whether the ways to reviewers are run here, too; else the kernel that shares them does."""

    def is_reachable(self) -> bool:
        """Return whether somebody seems to be there who decides what nothing else decides."""
        return self.panel.is_reachable() or (
            self.engine is not None and self.engine.chain.is_reachable()
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the reviewers' tasks until cancelled; open questions are withdrawn then."""
        if not self.is_whole:
            await self.questions.run(task_status=task_status)
        for line in self.notice.splitlines():
            _log.warning("%s", line)
        self.grants.restore()
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.mailbox.run)
                await tasks.start(self.notices.run)
                await tasks.start(self.questions.run)
                if self.auto_approver is not None:
                    tasks.start_soon(self.auto_approver.warm)
                if self.engine is not None:
                    await tasks.start(self.engine.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            await self.grants.keep(at_once=True)
            if self.auto_approver is not None:
                with anyio.move_on_after(_CLOSE, shield=True):
                    await self.auto_approver.aclose()


def heard(
    ways: AddedChannels | None, settings: Settings, clock: Clock, environ: Mapping[str, str]
) -> MessageSource:
    """Return the source of the user's last message: what a program added, or a file."""
    if ways is not None and ways.message is not None:
        return ways.message
    return ContextFile(directory=settings.mailbox_dir, clock=clock, is_pty=is_pty_session(environ))


def assemble_reviewers(
    settings: Settings,
    approvals: Approvals,
    clock: Clock,
    environ: Mapping[str, str],
    loaded: LoadedPolicy,
    ways: AddedChannels | None = None,
) -> Reviewers:
    """Join the reviewers. Starts nothing.

    Args:
        settings: what the operator said.
        approvals: what reviewers chose to remember.
        clock: the time.
        environ: tells whether the agent runs in a terminal of its own.
        loaded: the policy, under which grants are kept.
        ways: the ways to reviewers besides the mailbox.

    Raises:
        ConfigurationError: a setting needs a library that is not installed, or cannot be used.
    """
    missing = list(lacks(settings))
    for lack in missing:
        if lack.stops:
            raise ConfigurationError(str(lack))
    ways = ways or AddedChannels()
    persisted, notice = persisted_grants(settings, loaded, clock)
    grants = SessionGrants(approvals, persisted)

    async def command(action: GrantsAction, identifier: str | None) -> None:
        if action == "clear":
            await grants.clear()
        elif identifier is not None:
            await grants.revoke(identifier)
        mailbox.publish_grants(settings.session, grants.listing())

    # What a channel's wrapper takes back, such as a client whose user answered, is not asked again.
    outlive = holds(settings) and ways.around is None
    mailbox = Mailbox(
        MailboxSettings(
            directory=settings.mailbox_dir,
            assume_listener=settings.escalation_dir is not None,
            sessions_dir=settings.sessions_dir,
            require_digest=settings.escalation.require_digest,
            signed=ways.signed,
            outlive=outlive,
            principal=environ.get(PRINCIPAL_VARIABLE, ""),
        ),
        clock,
        command,
    )
    source = heard(ways, settings, clock, environ)
    auto_approver = None if missing else _auto_approver(settings, source, clock, environ)
    shadow = settings.auto_approve.shadow
    notices = _notices(settings)
    channels = _channels(settings, mailbox, ways)
    panel = Panel(channels, auto_approver, shadow=shadow, tell=notices.tell)
    engine = _engine(settings, clock, environ, panel, ways.timeline)
    aftermath = None if engine is None else engine.reviewer
    hold_after = settings.escalation.hold_after_seconds if holds(settings) else None
    questions = OpenQuestions(aftermath or panel, clock, hold_after=hold_after, aftermath=aftermath)
    if outlive:
        questions.keeper = mailbox
    return Reviewers(
        questions=questions,
        panel=panel,
        engine=engine,
        mailbox=mailbox,
        notices=notices,
        grants=grants,
        notice="\n".join([*map(str, missing), *([notice] if notice else [])]),
        auto_approver=auto_approver,
    )


def reviewers_beside(
    shared: Reviewers, settings: Settings, clock: Clock, ways: AddedChannels
) -> Reviewers:
    """Join the reviewers of another door: the same people and grants, by its own ways besides.

    Args:
        shared: those of the kernel that is running.
        settings: what the operator said.
        clock: the time.
        ways: the ways to reviewers besides the mailbox.
    """
    panel = Panel(
        _channels(settings, shared.mailbox, ways),
        shared.auto_approver,
        shadow=settings.auto_approve.shadow,
        tell=shared.notices.tell,
    )
    hold_after = settings.escalation.hold_after_seconds if holds(settings) else None
    questions = OpenQuestions(panel, clock, hold_after=hold_after)
    questions.keeper = shared.questions.keeper
    return replace(shared, questions=questions, panel=panel, is_whole=False)


def _notices(settings: Settings) -> WaitingNotices:
    """Return the notices that a call waits, as configured."""
    wanted = settings.escalation.notices
    ways: list[tuple[str, NoticeWay]] = []
    if wanted.desktop:
        own = desktop(path=beyond_agents(os.environ, settings.workspace)["PATH"])
        if own is None:
            _log.warning("escalation.noticeDesktop: neither notify-send nor osascript is here")
        else:
            ways.append(("desktop", own))
    if wanted.webhook:
        ways.append(("webhook", webhook(wanted.webhook)))
    if wanted.ntfy:
        ways.append(("ntfy", ntfy(wanted.ntfy, wanted.ntfy_token)))
    return WaitingNotices(ways)


def _channels(settings: Settings, mailbox: Mailbox, ways: AddedChannels) -> Sequence[Channel]:
    """Return the channels to reviewers, in the operator's order."""
    if ways.only is not None:
        return (ways.only,)
    known = {**ways.more, "mailbox": Channel(mailbox, mailbox.is_reachable, can_sign=True)}
    order = settings.escalation.channels
    named = [replace(known[name], name=name) for name in order if name in known]
    if ways.around is not None:
        named = [replace(one, reviewer=ways.around(one.reviewer)) for one in named]
    return (*named, *([] if ways.last is None else [ways.last]))


def holds(settings: Settings) -> bool:
    """Return whether calls are held after a while, rather than waiting to the end."""
    match settings.escalation.mode:
        case "wait":
            return False
        case "held":
            return True
        case "auto":
            # With a directory that the operator named, calls wait for answers as in the original.
            return settings.escalation_dir is None


def _engine(
    settings: Settings,
    clock: Clock,
    environ: Mapping[str, str],
    panel: Panel,
    timeline: Timeline | None,
) -> "EngineParts | None":
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return None
    # Off unless switched on, and its database library is slow to load.
    from ironcurtain_proxy.wiring.auto_confirm import EngineSurroundings, assemble_engine  # noqa: PLC0415

    # The same people, asked after the engine and not before: the auto-approver has its own turn.
    people = Panel(panel.channels, tell=panel.tell)
    around = EngineSurroundings(
        clock=clock, environ=environ, people=people, first=panel.first, timeline=timeline
    )
    return assemble_engine(settings, config, around)


def _auto_approver(
    settings: Settings, message: MessageSource, clock: Clock, environ: Mapping[str, str]
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
    from ironcurtain_proxy.auto_approver.target_call import CallSurroundings  # noqa: PLC0415
    from ironcurtain_proxy.facts.git import GitRemotes  # noqa: PLC0415
    from ironcurtain_proxy.facts.pushes import NamedCommits  # noqa: PLC0415
    from ironcurtain_proxy.llm.litellm_model import LlmLog  # noqa: PLC0415

    config = AutoApproverConfig(
        enabled=said.enabled,
        model_id=said.model_id,
        api_base=said.api_base,
        deadline_seconds=said.deadline_seconds,
        outages=said.max_outages,
        approvals_per_minute=said.max_per_minute,
        target_check=said.target_check,
        only=said.only,
        never=said.never,
        confidence=said.confidence,
        messages=said.messages,
        shadow=said.shadow,
    )
    model = create_model(config, said.api_key)
    if model is None:
        return None
    return AutoApprover(
        model=model,
        config=config,
        message=message,
        around=CallSurroundings(home=real(settings.home), workspace=settings.workspace),
        history=NamedCommits(
            GitRemotes(beyond_agents(environ, settings.workspace)), settings.workspace
        ),
        clock=clock,
        log=None if said.llm_log is None else LlmLog(said.llm_log),
    )
