"""The proxy's end of the mailbox: an escalation as a file, and the answer as another.

Knows how a question is asked and which answer counts; what the files say is `messages`, how they
lie on the disk is `private_directory`. One task watches the directory for all open questions, so
none waits for another. All file work is short and done in place, so that cancelling a question
always withdraws it.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError, KernelError
from ironcurtain_proxy.lasting import lasting
from ironcurtain_proxy.mailbox.adoption import (
    KeptQuestion,
    adopted,
    discard_leftovers,
    subject_of,
)
from ironcurtain_proxy.mailbox.mailboxes import is_listened_to, this_process
from ironcurtain_proxy.mailbox.messages import (
    MAX_RESPONSE_BYTES,
    Answer,
    Credential,
    Expected,
    Owner,
    asks_the_same,
    claim_name,
    digest_of,
    invalid,
    is_id,
    judge_response,
    read_signed,
    request_bytes,
    request_name,
    response_id,
    response_name,
    settled_name,
)
from ironcurtain_proxy.mailbox.session_state import (
    GrantsAction,
    discard_grants,
    grants_bytes,
    is_grants_command,
    read_command,
)
from ironcurtain_proxy.model.decision import KERNEL, TIMEOUT
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    EscalationId,
    Ruling,
    Unreachable,
)
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import AnswerJudge, Clock
from ironcurtain_proxy.private_directory import (
    MailboxDirectory,
    UnacceptableFileError,
    content,
    mark_taken,
    watch_directory,
)
from ironcurtain_proxy.steady_clock import in_this_boot, on_the_wall

_EMPTY_GRACE: Final = 0.25
"""Seconds for which an empty response counts as still being written, as by a shell's `>`."""


class Question(Struct, kw_only=True, eq=False):
    """One question, open or settled."""

    escalation: Escalation
    place: MailboxDirectory
    expected: Expected
    answered: anyio.Event = field(default_factory=anyio.Event)
    ruling: Ruling | None = None
    signed: dict[str, SignedAnswer] = field(default_factory=dict)
    """The signed answers that count, by the names of their files. Several may be needed."""
    _empty_since: float | None = None
    """The time since which an empty response has been there, in monotonic seconds."""

    @property
    def is_proved(self) -> bool:
        """Whether only answers with a proof of their author count, and others settle nothing."""
        return self.expected.credential is not None or self.escalation.signing is not None

    def rule(self, ruling: Ruling) -> None:
        """Settle the question. Only the first answer counts."""
        if self.ruling is None:
            self.ruling = ruling
            self.answered.set()

    def may_be_answered_by(self, name: str) -> bool:
        """Return whether a file of this name is an answer to it.

        Nobody can occupy a name that nobody can foresee. Only an answer with a proof of its author
        may have such a name.
        """
        if not self.is_proved:
            return name == response_name(self.escalation.id)
        return response_id(name) == self.escalation.id

    def names_of_answers(self) -> list[str]:
        """Return the file names under which answers may lie."""
        if self.is_proved:
            with suppress(OSError):
                return [name for name in self.place.names() if self.may_be_answered_by(name)]
        return [response_name(self.escalation.id)]

    def may_still_be_written(self, now: float) -> bool:
        """Return whether an empty response may be still being written; `now` is monotonic."""
        if self._empty_since is None:
            self._empty_since = now
        return now - self._empty_since < _EMPTY_GRACE


_log = logging.getLogger(__name__)

GrantsListener = Callable[[GrantsAction, str | None], Awaitable[None]]
"""Called with `("revoke", grant id)` or `("clear", None)` for an operator's command."""

_SAFETY_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Intervals in which the directory is also read without a notice: short ones after a question,
while the watch is being set up, then every second, where the file system sends no notices."""
_LATE_SECONDS: Final = 0.5
"""Seconds after the deadline within which a busy machine may take its last look."""
_EXPIRED: Final = Declined(by=TIMEOUT, kind="expired")
_MAX_WARNINGS: Final = 100
"""The most warnings about answers that do not count. A flood must not fill the log."""
_MOST_LEFT: Final = 10_000
"""The most files that wait for removal; the next start finds the others."""
_GONE: Final = "the escalation directory disappeared while waiting"


class MailboxSettings(Struct, frozen=True, kw_only=True):
    """The location of the mailbox, and the assumptions about it."""

    directory: Path
    assume_listener: bool
    """Whether a listener is assumed, because the operator named the directory."""
    sessions_dir: Path | None = None
    """The directory where a `review` of all sessions has its lock."""
    require_digest: bool = False
    """Refuse an approval without the digest of the request."""
    credential: Credential | None = None
    """The credential without which an answer does not count, and settles nothing; None: the first
    answer counts, and one that cannot be accepted refuses the call."""
    outlive: bool = False
    """Whether a question stays where the proxy ends, for another to adopt it."""
    principal: str = ""
    """Whose agent asks, where that is not the user."""
    signed: AnswerJudge | None = None
    """Decides about signed answers, or None if none counts."""


class Mailbox:
    """Asks through files, while `run` runs. Implements `ports.Reviewer`."""

    def __init__(
        self,
        settings: MailboxSettings,
        clock: Clock,
        on_grants_command: GrantsListener | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_grants_command = on_grants_command
        self._owner = owner or this_process()
        self._place: MailboxDirectory | None = None
        self._open: dict[str, Question] = {}
        self._running = False
        self._asked = anyio.Event()
        self._look_soon = anyio.Event()
        self._stop_watching = anyio.Event()
        self._commands: dict[str, MailboxDirectory] = {}
        self._warnings = 0
        self._left: dict[str, MailboxDirectory] = {}
        """Files of ended questions that could not be removed."""
        self._adopted: dict[EscalationId, KeptQuestion] = {}
        """Questions of earlier proxies that are about to be asked again."""
        self._withdrawn: set[EscalationId] = set()
        self._kept: dict[EscalationId, Question] = {}
        """Questions whose files stay: approved and not used, or cancelled because we end."""

    def is_reachable(self) -> bool:
        """Return whether somebody listens."""
        if not self._running:
            return False
        if self._adopted:  # somebody was there, and may have answered
            return True
        if self._settings.assume_listener or is_listened_to(self._settings.directory):
            return True
        everywhere = self._settings.sessions_dir
        return everywhere is not None and is_listened_to(everywhere)

    async def ask(self, escalation: Escalation) -> Ruling:
        """Ask, and wait at most until the escalation's deadline.

        Leaves no files behind, but for those of an approval where questions outlive this process.

        Raises:
            KernelError: the id is not one of ours, or is already being asked about.
        """
        if not is_id(escalation.id) or escalation.id in self._open:
            raise KernelError("an escalation has an id that cannot be used")
        if not self.is_reachable():
            return Unreachable()
        if self._seconds_left(escalation) <= 0:
            return _EXPIRED
        try:
            question = self._post(escalation)
        except (OSError, ConfigurationError) as error:
            _log.error("nobody can be asked: %s", error)
            return Unreachable()
        except TypeError:
            return invalid("the call cannot be shown: its arguments are nested too deeply")
        self._open[escalation.id] = question
        self._asked.set()
        self._look_soon.set()
        ruling: Ruling | None = None
        try:
            ruling = await self._wait(question)
            return ruling
        finally:
            del self._open[escalation.id]
            was_withdrawn = escalation.id in self._withdrawn
            self._withdrawn.discard(escalation.id)
            is_over = ruling is not None and not isinstance(ruling, Approved)
            if is_over or was_withdrawn or not self._settings.outlive:
                self._clear_away(question)
            else:
                self._kept[escalation.id] = question

    def adopt(self, escalation: Escalation) -> Escalation:
        """Return a call's question under the id by which a proxy that is gone asked it, if any."""
        if not self._running:
            return escalation
        subject = subject_of(escalation, self._settings.principal)
        try:
            place = self._opened()
            found = adopted(
                place, self._settings.sessions_dir, subject, self._owner, self._clock.now()
            )
        except (OSError, ConfigurationError) as error:
            _log.warning("no earlier question can be looked for: %s", error)
            return escalation
        if found is None:
            return escalation
        self._adopted[found.id] = found
        with suppress(TypeError):
            if asks_the_same(found.raw, self._written(escalation)):
                return found.asked(escalation, self._clock.steady())
        # What a person was shown is not what would be carried out: somebody has edited the file.
        _log.warning("the question %s was changed since it was asked: it is asked anew", found.id)
        self.withdraw(found.id)
        return escalation

    def answered(self, identifier: EscalationId) -> None:
        """Keep a question that was answered here by an approval, and no other."""
        kept = self._kept.get(identifier)
        if kept is None or not isinstance(kept.ruling, Approved):
            self.withdraw(identifier)
        else:
            with suppress(OSError):  # a reviewer may be asked in vain
                kept.place.write(settled_name(identifier), b"")

    def withdraw(self, identifier: EscalationId) -> bool:
        """Forget a question, before it is cancelled or used. Return False if its files stay."""
        if identifier in self._open:
            self._withdrawn.add(identifier)
        kept = self._kept.pop(identifier, None)
        if kept is not None:
            self._clear_away(kept)
            return not kept.place.has(request_name(identifier))
        if self._adopted.pop(identifier, None) is not None and self._place is not None:
            for name in (request_name, response_name, claim_name):
                self._place.discard(name(identifier))
        return True

    def _post(self, escalation: Escalation) -> Question:
        place = self._opened()
        kept = self._adopted.pop(escalation.id, None)
        if kept is not None:
            return self._question(escalation, place, kept.raw)
        raw = self._written(escalation)
        if self._settings.credential is not None or escalation.signing is not None:
            # Whoever knows the id from another mailbox cannot keep the question out of this one.
            place.clear(request_name(escalation.id))
            place.clear(response_name(escalation.id))
        if not place.discard(response_name(escalation.id)):
            raise ConfigurationError(
                f"{place.path / response_name(escalation.id)} cannot be removed"
            )
        place.write(request_name(escalation.id), raw)
        return self._question(escalation, place, raw)

    def _written(self, escalation: Escalation) -> bytes:
        """Return the bytes of a question.

        Raises:
            TypeError: its arguments are nested too deeply.
        """
        credential = self._settings.credential
        shown = replace(
            escalation,
            created=on_the_wall(escalation.created, self._clock),
            deadline=on_the_wall(escalation.deadline, self._clock),
        )
        return request_bytes(
            shown,
            self._owner,
            "" if credential is None else credential.reviewer,
            in_this_boot(escalation.deadline, self._clock),
            subject_of(escalation, self._settings.principal) if self._settings.outlive else "",
            os.uname().nodename,
        )

    def _question(self, escalation: Escalation, place: MailboxDirectory, raw: bytes) -> Question:
        return Question(
            escalation=escalation,
            place=place,
            expected=Expected(
                digest=digest_of(raw),
                require_digest=self._settings.require_digest,
                candidates=len(escalation.candidates),
                session=escalation.session,
                id=escalation.id,
                credential=self._settings.credential,
                may_edit=escalation.editable,
            ),
        )

    def _opened(self) -> MailboxDirectory:
        """Return the open directory, created again if it was removed."""
        if self._place is not None and not self._place.is_in_place():
            self._lose(self._place)
        if self._place is None:
            self._place = MailboxDirectory.open(self._settings.directory, create=True)
        return self._place

    async def _wait(self, question: Question) -> Ruling:
        with anyio.move_on_after(self._seconds_left(question.escalation)):
            await question.answered.wait()
        if question.ruling is None:
            for name in question.names_of_answers():
                self._look(question, name, late_seconds=_LATE_SECONDS)
        return question.ruling or _EXPIRED

    def _seconds_left(self, escalation: Escalation) -> float:
        return (escalation.deadline - self._clock.steady()).total_seconds()

    def _clear_away(self, question: Question) -> None:
        """Remove the request before its answers: a response alone shows an ended question."""
        identifier = question.escalation.id
        beside = [claim_name(identifier), settled_name(identifier)]
        also = beside if self._settings.outlive else []
        for name in (request_name(identifier), *question.names_of_answers(), *also):
            if not question.place.discard(name):
                _log.warning("%s is left in the escalation directory until that is writable", name)
                if len(self._left) < _MOST_LEFT:
                    self._left[name] = question.place

    def _clear_what_is_left(self) -> None:
        """Remove the files of ended questions, and try again until it succeeds."""
        for name, place in list(self._left.items()):
            if place.discard(name):
                del self._left[name]

    # --- answers ---------------------------------------------------------------------------------

    def _look(self, question: Question, name: str, late_seconds: float = 0) -> None:
        """Read a response, if there is one. It counts until a given time after the deadline."""
        if question.ruling is not None or name in question.signed:
            return
        try:
            with question.place.opened(name, MAX_RESPONSE_BYTES) as descriptor:
                raw = content(descriptor, MAX_RESPONSE_BYTES)
                if not raw and question.may_still_be_written(self._clock.monotonic()):
                    return
                answer = self._judged(question, name, raw)
                if answer is None:
                    mark_taken(descriptor)
                    return
                if isinstance(answer, Approved) or answer.kind != "invalid":
                    if self._seconds_left(question.escalation) >= -late_seconds:
                        mark_taken(descriptor)
                    else:
                        # The machine slept past the deadline.
                        answer = _EXPIRED
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001  an answer must not end the calls of others
            answer = _unusable(error, name)
        self._take(question, name, answer)

    def _judged(self, question: Question, name: str, raw: bytes) -> Answer | None:
        """Return what a response comes to; `None` means that further signatures are needed."""
        escalation, digest = question.escalation, question.expected.digest
        if escalation.signing is None:
            return judge_response(raw, question.expected)
        signed, judge = read_signed(raw), self._settings.signed
        if isinstance(signed, str):
            return invalid(signed)
        if judge is None:
            return invalid("no signature can be checked here")
        if why := judge.objection(escalation, digest, signed):
            return invalid(why)
        question.signed[name] = signed
        return judge.weigh(escalation, digest, tuple(question.signed.values()))

    def _take(self, question: Question, name: str, answer: Answer) -> None:
        if isinstance(answer, Approved) or answer.kind != "invalid":
            question.rule(answer)
        elif not question.is_proved:
            _log.warning("an escalation was refused: %s", answer.reason)
            question.rule(answer)
        else:
            # Somebody else's words: the question stays open, and the name is free again.
            question.place.clear(name)
            self._warnings += 1
            if self._warnings <= _MAX_WARNINGS:
                _log.warning(
                    "an answer in %s does not count: %s", question.place.path, answer.reason
                )

    def _notice(self, place: MailboxDirectory, name: str) -> None:
        """Handle an event for a file of this name, or its discovery."""
        if is_grants_command(name):
            self._commands[name] = place
            return
        answered = response_id(name)
        if answered is None:
            return
        question = self._open.get(answered)
        if question is not None:
            if question.may_be_answered_by(name):
                self._look(question, name)
        elif not place.has(request_name(answered)):
            # A response that is late, repeated or without a request is removed, and never counts.
            # One with a request belongs to another proxy that shares the directory.
            place.discard_ours(name)

    # --- the one task ----------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch the directory until cancelled.

        Raises:
            ConfigurationError: the operator's directory cannot be used.
        """
        self._open_at_start()
        self._running = True
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lasting, "the look for answers", self._look_regularly)
                task_status.started()
                await lasting("the watch for answers", self._watch)
        finally:
            self._running = False
            self._end()

    def _open_at_start(self) -> None:
        try:
            place = MailboxDirectory.open(
                self._settings.directory, create=self._settings.assume_listener
            )
        except FileNotFoundError:
            return
        self._place = place
        discard_leftovers(place)

    def _end(self) -> None:
        for question in [] if self._settings.outlive else list(self._open.values()):
            question.rule(Declined(by=KERNEL, kind="withdrawn", reason="the proxy is ending"))
        self._clear_what_is_left()
        if self._place is not None:
            discard_grants(self._place, self._owner)
            self._place.close()
            self._place = None

    async def _watch(self) -> None:
        """Follow the events of the directory while a question is open, until cancelled."""
        while True:
            await self._asked.wait()
            if self._open and (place := self._place) is not None:
                self._stop_watching = anyio.Event()
                async with aclosing(watch_directory(place.path, self._stop_watching)) as watch:
                    async for names in watch:
                        for name in names:
                            self._notice(place, name)
                        await self._hand_over_commands()
                        if not self._open:
                            break
            if not self._open:
                self._asked = anyio.Event()
            else:
                await anyio.sleep(_SAFETY_SECONDS[0])

    async def _look_regularly(self) -> None:
        """Find files that no event reported, and check that the directory still exists."""
        turn = len(_SAFETY_SECONDS) - 1
        while True:
            self._look_soon = anyio.Event()
            with anyio.move_on_after(_SAFETY_SECONDS[turn]) as pause:
                await self._look_soon.wait()
            turn = min(turn + 1, len(_SAFETY_SECONDS) - 1) if pause.cancelled_caught else 0
            self._clear_what_is_left()
            self._look_at_everything()
            await self._hand_over_commands()

    def _look_at_everything(self) -> None:
        place = self._place
        if place is None:
            return
        if not place.is_in_place():
            self._lose(place)
            return
        with suppress(OSError):
            for name in place.names():
                self._notice(place, name)

    def _lose(self, place: MailboxDirectory) -> None:
        credential = self._settings.credential
        lost = [question for question in self._open.values() if question.place is place]
        if lost:
            _log.error("%s: %s; %d questions are given up", place.path, _GONE, len(lost))
        for question in lost:
            # Whoever can move the directory of one reviewer cannot deny in its place.
            question.rule(invalid(_GONE) if credential is None else Unreachable())
        self._place = None
        self._stop_watching.set()

    def publish_grants(self, session: str, grants: Sequence[Mapping[str, Json]]) -> None:
        """Write the remembered grants to `grants.json`, for `grants list`.

        A failure is logged: nothing is decided by that file.
        """
        try:
            if not grants and self._place is None and not self._settings.directory.is_dir():
                return
            self._opened().write("grants.json", grants_bytes(session, grants, self._owner))
        except (OSError, ConfigurationError) as error:
            _log.warning("grants.json cannot be written: %s", error)

    async def _hand_over_commands(self) -> None:
        """Carry out the commands found, and remove their files: their senders wait for that."""
        while self._commands:
            name, place = self._commands.popitem()
            command = read_command(place, name)
            if command is not None and self._on_grants_command is not None:
                await self._on_grants_command(*command)
            place.discard(name)


def _unusable(error: Exception, name: str) -> Declined:
    if isinstance(error, UnacceptableFileError):
        return invalid(f"the response {error}")
    _log.error("the answer %s met a defect", name, exc_info=error)
    return invalid("the response met a defect of the proxy")
