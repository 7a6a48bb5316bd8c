"""The open questions of a session: each asked once, however often the agent repeats its call.

A call waits here for its ruling. In held mode it waits for a limited time, then returns to the
agent with the number of its question, which stays open. When the same call is made again it joins
the question; if the question was approved meanwhile, the call is forwarded at once. An approval is
used once.

No call blocks another one here.

A notice that a call waits for a person goes to the desktop, to a webhook, or to ntfy. It is never
waited for: one that cannot be sent is dropped, and said once in the log. It names the tool and the
reason, and no argument: arguments may hold secrets, and it leaves the machine.
"""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from shutil import which
from subprocess import DEVNULL
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import Capability
from ironcurtain_proxy.model.case import EscalationState, advance, state_after
from ironcurtain_proxy.model.decision import KERNEL, TIMEOUT
from ironcurtain_proxy.model.escalation import (
    APPROVAL_LASTS,
    NAMED_BY_LINE,
    AlreadyUsed,
    Approved,
    Declined,
    Escalation,
    EscalationId,
    Held,
    Ruling,
    Superseded,
    Unreachable,
    visible,
)
from ironcurtain_proxy.model.operation import Caller, is_like_a_label
from ironcurtain_proxy.ports import Clock, OutcomeListener, Reviewer

# --- open questions

_log: Final = logging.getLogger(__name__)

OnWait: TypeAlias = Callable[[float], Awaitable[None]]
"""Called every few seconds with the seconds that the call has waited."""

RefusalListener: TypeAlias = Callable[[Escalation, Declined], Awaitable[None]]

PULSE: Final = 5.0
"""Seconds between two progress notifications: clients give up near 60."""

_WITHOUT_HANDSHAKE: Final = 320.0
"""Seconds that a call of a client without a handshake waits before it is held: such a client asks
again and again while it waits, and gives up at the tenth time. One with a task does not."""

MAX_OPEN: Final = 1000
"""The largest number of questions at once. A person cannot answer more, and the agent could ask
without end."""

_TOO_MANY: Final = Declined(
    by=KERNEL, kind="limit", reason="too many calls of this session wait for a reviewer"
)
_KEPT: Final = Declined(
    by=KERNEL,
    kind="invalid",
    reason="the question's file cannot be removed, and its approval could be used twice",
)

_QuestionKey: TypeAlias = tuple[tuple[object, ...], frozenset[Capability]]
"""The question without its capabilities, and the capabilities."""


class _Question(Struct):
    """One escalation and the calls that wait for it."""

    escalation: Escalation
    state: EscalationState = "open"
    ruling: Ruling | None = None
    waiting: int = 0
    asker_waits: bool = False
    """Whether the first call of the question still waits: the approval is its own."""
    superseded: bool = False
    """Whether the policy that asked is no longer in force."""
    held: bool = False
    """Whether the agent was told to repeat the call, so that a question without waiting calls
    stays."""
    ruled_at: float | None = None
    """The time of the ruling in monotonic seconds: a clock set back must not extend an approval."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class QuestionKeeper(Protocol):
    """Keeps questions beyond the end of a process."""

    def adopt(self, escalation: Escalation) -> Escalation:
        """Return the question as an earlier process asked it; unchanged if none has."""

    def answered(self, identifier: EscalationId) -> None:
        """Note that a question is answered. Its approval is kept until it is withdrawn."""

    def withdraw(self, identifier: EscalationId) -> bool:
        """Note that a question is not to be kept, before it is cancelled, or its approval used.

        Return False if it cannot be forgotten.
        """


class OpenQuestions(Struct, eq=False):
    """Settles the escalations of one session."""

    reviewer: Reviewer
    clock: Clock
    hold_after: float | None
    aftermath: OutcomeListener | None = None
    _questions: dict[_QuestionKey, _Question] = field(default_factory=dict)
    _tasks: TaskGroup | None = None
    keeper: QuestionKeeper | None = None
    """Keeps questions beyond the end of this process, or None if they end with it."""
    _leaves: bool = False
    on_refused_later: RefusalListener | None = None
    """Called with the refusal of a held call for which no call waits: the agent may never make
    the call again."""

    @property
    def holds(self) -> bool:
        """Whether calls may be held."""
        return self.hold_after is not None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the questions' tasks until cancelled; then withdraw all questions."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def ask(
        self, escalation: Escalation, on_wait: OnWait | None = None
    ) -> Ruling | Held | AlreadyUsed | Superseded:
        """Get a ruling on a call, or hold the call.

        A call that is cancelled while it waits withdraws its question, unless other calls wait
        for it.
        """
        question = self._find(escalation)
        is_asker = question is None
        question = question or self._begin(escalation)
        if question is None:
            return Unreachable() if self._tasks is None else _TOO_MANY
        hold_after = self.hold_after
        if escalation.caller is not None and not _is_task(escalation, escalation.caller):
            hold_after = min(hold_after or _WITHOUT_HANDSHAKE, _WITHOUT_HANDSHAKE)
        if not await self._join(question, on_wait, hold_after, is_asker=is_asker):
            if question.superseded:
                return Superseded()
            question.held = True
            return Held(question.escalation.id)
        ruling = self._take(question)
        is_own = question.escalation.id == escalation.id
        if is_own or isinstance(ruling, Unreachable | AlreadyUsed | Superseded):
            return ruling
        return replace(ruling, question=question.escalation.id)

    async def _join(
        self,
        question: _Question,
        on_wait: OnWait | None,
        hold_after: float | None,
        *,
        is_asker: bool,
    ) -> bool:
        question.waiting += 1
        question.asker_waits |= is_asker
        try:
            return await self._wait(question, on_wait, hold_after)
        except BaseException:
            if question.waiting == 1 and not question.held and not self._leaves:
                self._withdraw(question)
                question.scope.cancel()
                self._drop(question)
            raise
        finally:
            question.waiting -= 1
            question.asker_waits &= not is_asker

    def leave(self) -> None:
        """Note that the proxy ends: from now on no cancelled call withdraws its question.

        Where questions are kept, the next proxy gets them.
        """
        self._leaves = self.keeper is not None

    def _withdraw(self, question: _Question) -> bool:
        return self.keeper is None or self.keeper.withdraw(question.escalation.id)

    def supersede(self, policy_version: str) -> int:
        """Withdraw the questions that another policy asked. Returns their number."""
        others = [
            question
            for question in self._questions.values()
            if question.escalation.policy_version != policy_version
        ]
        for question in others:
            question.superseded = True
            self._withdraw(question)
            question.scope.cancel()
            self._drop(question)
        return len(others)

    def open(self) -> tuple[tuple[Escalation, EscalationState], ...]:
        """Return the questions that are open, or answered and not used yet."""
        self._tidy()
        return tuple((q.escalation, q.state) for q in self._questions.values())

    def _find(self, escalation: Escalation) -> _Question | None:
        self._tidy()
        # INVARIANT: an approval is bound to the session, the exact call and the policy version.
        # Where questions outlive a proxy, it is bound to whose agent asks instead of the session.
        key = _key(escalation)
        return self._questions.get(key) or self._find_wider(key)

    def _begin(self, escalation: Escalation) -> _Question | None:
        """Ask a question, or adopt it from a proxy that is gone. None: it cannot be asked now."""
        if self._tasks is None or len(self._questions) >= MAX_OPEN:
            return None
        asked = escalation if self.keeper is None else self.keeper.adopt(escalation)
        question = self._questions[_key(asked)] = _Question(asked)
        self._tasks.start_soon(self._ask, question)
        return question

    def _find_wider(self, key: _QuestionKey) -> _Question | None:
        """Return an open question of the same call with more capabilities.

        Its answer settles this one.
        """
        same, names = key
        for (other, wider), question in self._questions.items():
            if names < wider and other == same:
                return question
        return None

    async def _ask(self, question: _Question) -> None:
        ruling: Ruling = Declined(by=TIMEOUT, kind="withdrawn")
        try:
            with question.scope:
                ruling = await self.reviewer.ask(question.escalation)
                if self.keeper is not None:
                    self.keeper.answered(question.escalation.id)
        except Exception:  # noqa: BLE001  a defect in one way to a reviewer refuses one call
            _log.exception("escalation %s could not be asked", question.escalation.id)
            ruling = Declined(by=KERNEL, kind="invalid", reason="it could not be asked")
        finally:
            question.ruling = ruling
            question.state = advance(question.state, state_after(ruling))
            question.ruled_at = self.clock.monotonic()
            question.settled.set()
            self._note_refusal(question, ruling)
            if question.scope.cancel_called:
                # It was approved at the moment of its withdrawal.
                self._drop(question)

    def _note_refusal(self, question: _Question, ruling: Ruling) -> None:
        if not isinstance(ruling, Declined) or ruling.kind == "withdrawn":
            return
        tell = None if question.waiting else self.on_refused_later
        if self._tasks is not None and tell is not None:
            self._tasks.start_soon(self._tell_refusal, tell, question.escalation, ruling)

    async def _tell_refusal(
        self, tell: RefusalListener, escalation: Escalation, ruling: Declined
    ) -> None:
        try:
            await tell(escalation, ruling)
        except Exception:  # noqa: BLE001  a record; the other questions are worth more
            _log.exception("the refusal of the held call %s is not recorded", escalation.id)

    async def _wait(
        self, question: _Question, on_wait: OnWait | None, hold_after: float | None
    ) -> bool:
        """Wait for the ruling. Return False if the call has waited as long as it may."""
        started = self.clock.monotonic()
        while not question.settled.is_set():
            waited = self.clock.monotonic() - started
            pause = PULSE if hold_after is None else min(PULSE, hold_after - waited)
            if pause <= 0:
                return False
            with anyio.move_on_after(pause):
                await question.settled.wait()
            if on_wait is not None and not question.settled.is_set():
                with suppress(OSError):
                    await on_wait(self.clock.monotonic() - started)
        return True

    def _take(self, question: _Question) -> Ruling | AlreadyUsed | Superseded:
        """Return the ruling; an approval is returned once."""
        self._forget(question)
        if question.superseded:
            return Superseded()
        if isinstance(question.ruling, Approved):
            if question.state != "approved" or question.asker_waits:
                return AlreadyUsed()
            question.state = advance(question.state, "used")
            if not self._withdraw(question):
                return _KEPT
        return question.ruling or Unreachable()

    def _forget(self, question: _Question) -> None:
        if self._questions.get(_key(question.escalation)) is question:
            del self._questions[_key(question.escalation)]

    def _tidy(self) -> None:
        """Drop answers that no call came back for."""
        oldest = self.clock.monotonic() - APPROVAL_LASTS.total_seconds()
        for question in list(self._questions.values()):
            if question.ruled_at is not None and question.ruled_at < oldest:
                self._drop(question)

    def _drop(self, question: _Question) -> None:
        """Drop a question that no call will come back for."""
        self._forget(question)
        if question.state == "approved":
            self._withdraw(question)
            question.state = advance(question.state, "lapsed")
            if self._tasks is not None and self.aftermath is not None:
                self._tasks.start_soon(self._tell, self.aftermath, question.escalation.id)

    async def _tell(self, aftermath: OutcomeListener, identifier: EscalationId) -> None:
        try:
            await aftermath.ended(identifier, succeeded=None)
        except Exception:  # noqa: BLE001  a note; the other questions are worth more
            _log.exception("it could not be noted that nobody took the approval %s", identifier)


def _is_task(escalation: Escalation, caller: Caller) -> bool:
    """Return whether the client looks at the call when it likes, instead of waiting for it."""
    return caller.knows_tasks and not is_like_a_label(escalation.tool)


def _key(escalation: Escalation) -> _QuestionKey:
    """Return the parts of a call that a reviewer's answer depends on.

    A different call is asked anew.

    Arguments alone would not be enough: they may lead elsewhere by now (a link, a remote), and
    the answer would be used for a call that nobody was asked about.
    """
    names = frozenset([name for reason in escalation.reasons for name in reason.capabilities])
    same = (
        escalation.fingerprint,
        escalation.policy_version,
        escalation.definition,
        escalation.request,
        tuple([reason for reason in escalation.reasons if not reason.capabilities]),
        escalation.candidates,
        tuple([one for one in escalation.context if one[0] != NAMED_BY_LINE]),
        escalation.command,
        escalation.place,
        escalation.opening,
    )
    return same, names


# --- notices that a call waits


QUEUE: Final = 64
"""The most notices that wait. Further ones are dropped."""
DEADLINE: Final = 5.0
"""Seconds for one notice on one way."""
_LONGEST: Final = 300
_FIRST_BAD: Final = 300
_MAC: Final = (
    *("osascript", "-e", "on run argv", "-e"),
    *("display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run"),
)


class WaitingNotice(Struct, frozen=True):
    """A notice that a call waits."""

    id: str
    session: str
    server: str
    tool: str
    reason: str

    @classmethod
    def of(cls, escalation: Escalation) -> "WaitingNotice":
        """Return the notice of a question."""
        return cls(
            id=escalation.id,
            session=escalation.session,
            server=escalation.server,
            tool=escalation.tool,
            reason=visible(escalation.why)[:_LONGEST],
        )

    @property
    def title(self) -> str:
        """The title, one line."""
        return visible(f"{self.server}/{self.tool} waits for you")[:_LONGEST]


NoticeWay: TypeAlias = Callable[[WaitingNotice], Awaitable[None]]
"""Carries one notice. May raise `OSError`."""


def desktop(platform: str = sys.platform, path: str | None = None) -> NoticeWay | None:
    """Return the way to the desktop's notices.

    It is None if there is no program for them on a path.
    """
    program = which("osascript" if platform == "darwin" else "notify-send", path=path)
    if program is None:
        return None
    start = (program, *_MAC[1:]) if platform == "darwin" else (program, "--app-name=ironcurtain")

    async def show(notice: WaitingNotice) -> None:
        # `--`: the reason is no option, whatever it begins with.
        argv = (*start, "--", notice.title, notice.reason)
        found = await anyio.run_process(argv, stdin=DEVNULL, check=False, stderr=DEVNULL)
        if found.returncode:
            raise OSError(f"{program} ended with status {found.returncode}")

    return show


def webhook(url: str) -> NoticeWay:
    """Return the way to an address, by a posted JSON object."""

    async def post(notice: WaitingNotice) -> None:
        document = {
            "event": "question",
            "id": notice.id,
            "session": notice.session,
            "server": notice.server,
            "tool": notice.tool,
            "reason": notice.reason,
            "text": f"{notice.title}: {notice.reason}",
        }
        headers = {"Content-Type": "application/json"}
        await post_once(url, orjson.dumps(document), headers)

    return post


def ntfy(url: str, token: str = "") -> NoticeWay:
    """Return the way to a topic of ntfy, by a message."""

    async def post(notice: WaitingNotice) -> None:
        headers = {"Title": notice.title.encode("ascii", "replace").decode(), "Priority": "high"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        await post_once(url, notice.reason.encode(), headers)

    return post


async def post_once(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Post without redirects, and without settings of the environment.

    Raises:
        OSError: it was not taken. The message does not name the address.
    """
    await anyio.to_thread.run_sync(_post_now, url, body, headers, abandon_on_cancel=True)


def _post_now(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    # Only for who wants notices: it takes a fortieth of the start.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        target = parts.path or "/"
        connection.request(
            "POST", f"{target}?{parts.query}" if parts.query else target, body, dict(headers)
        )
        status = connection.getresponse().status
    except HTTPException as error:
        raise OSError(type(error).__name__) from None
    finally:
        connection.close()
    if status >= _FIRST_BAD:
        raise OSError(f"it answered with status {status}")


class WaitingNotices(Struct, eq=False):
    """Sends notices beside the calls."""

    ways: Sequence[tuple[str, NoticeWay]]
    """The ways, each with its name for the log."""
    _queue: list[WaitingNotice] = field(default_factory=list)
    _came: anyio.Event = field(default_factory=anyio.Event)
    _complained: set[str] = field(default_factory=set)

    def tell(self, escalation: Escalation) -> None:
        """Queue the notice of a call that waits. Never blocks."""
        if self.ways and len(self._queue) < QUEUE:
            self._queue.append(WaitingNotice.of(escalation))
            self._came.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled."""
        task_status.started()
        while True:
            await self._came.wait()
            self._came = anyio.Event()
            while self._queue:
                notice = self._queue.pop(0)
                async with anyio.create_task_group() as tasks:
                    for name, way in self.ways:
                        tasks.start_soon(self._send, name, way, notice)

    async def _send(self, name: str, way: NoticeWay, notice: WaitingNotice) -> None:
        problem = f"nothing within {DEADLINE:g} seconds"
        with anyio.move_on_after(DEADLINE):
            try:
                await way(notice)
            except Exception as error:  # noqa: BLE001  nothing waits for it, and no call ends by it
                problem = str(error) or type(error).__name__
            else:
                self._complained.discard(name)
                return
        if name not in self._complained:
            self._complained.add(name)
            _log.warning("notices by %s do not arrive: %s", name, problem)
