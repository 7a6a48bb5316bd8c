"""A reviewer that is a process: questions and answers are lines.

The process is started on first use, and restarted a limited number of times. Its `Dialect` reads
the lines, and the first valid answer counts. A line that is no answer is logged only. When the
dialect says that no answer can come, the next reviewer is asked.

`launcher` starts and ends the process, with its descendants and its standard error. Its token goes
through a separate pipe: the environment of a process is readable for all processes of the user and
inherited by its children, and standard input is shown to the reviewer's model.
"""

import logging
import math
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import orjson
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.audit.bounding import RecordLimits, shape_arguments
from ironcurtain_proxy.auto_confirm.briefing import (
    MAX_ALL,
    REVIEW_BY_REQUESTER,
    PassedOn,
    Redact,
    Redacted,
    is_same_party,
    unless_cut,
    view_of,
)
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED, EngineDecision
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import (
    NOTHING_OPEN,
    Dialect,
    LineDialect,
    MakeDialect,
    NoAnswer,
    ProcessAnswer,
    ReviewQueue,
)
from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.process import ServerProcess, StderrDrain, spawn
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.jsonrpc.pipes import LineReader, Oversize, open_wire
from ironcurtain_proxy.jsonrpc.sending import LineWriter
from ironcurtain_proxy.model.decision import TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, WithSecrets, words
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.steady_clock import on_the_wall

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- process start


TOKEN_FD: Final = "IRONCURTAIN_REVIEWER_TOKEN_FD"  # noqa: S105  a variable's name
"""The variable with the number of the descriptor from which the token is read, to its end."""

REVIEWER_NAME: Final = "IRONCURTAIN_REVIEWER_NAME"

BASE: Final = words("PATH HOME USER LOGNAME LANG TZ TERM SHELL TMPDIR")
"""The variables for every process, in addition to `LC_*`."""

_TOKEN_BYTES: Final = 32


class ProcessSpec(WithSecrets, frozen=True, kw_only=True):
    """A reviewer that is a process, as the operator names it."""

    hidden: ClassVar[frozenset[str]] = frozenset({"env"})

    name: str
    command: tuple[str, ...]
    """A program and its arguments. No shell."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the base. May hold secrets, such as a model's key."""
    dialect: MakeDialect = LineDialect
    """The protocol of the process."""
    ready_seconds: float = 30.0
    """Seconds until it must be ready."""
    at_once: int = 16
    """The most concurrent reviews."""
    restarts: int = 5
    """The number of restarts after the process has ended."""

    def __post_init__(self) -> None:
        if not self.command or not all(self.command[:1]) or "\0" in "".join(self.command):
            raise ConfigurationError(f"reviewer {self.name!r} has no command")
        if not self.name or not self.name.isprintable():
            raise ConfigurationError("a reviewer has no name that can be shown")
        if self.at_once < 1 or self.restarts < 0:
            raise ConfigurationError(f"reviewer {self.name!r}: a number is too small")


class Start(WithSecrets, frozen=True, kw_only=True):
    """The arguments for its start."""

    hidden: ClassVar[frozenset[str]] = frozenset({"environment", "secrets"})

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """All it finds in its environment."""
    inherited: tuple[int, ...]
    """Descriptors that it inherits under the same numbers; `prepared` closes them."""
    secrets: tuple[str, ...]
    """Values to mask in its output."""


class ReviewerProcess(Protocol):
    """A running process."""

    def take_wire(self) -> tuple[int, int]:
        """Hand over the descriptors of its output, to read, and of its input, to write."""

    def end(self, grace: float) -> int:
        """End it with all its descendants, and wait for the end. Blocks.

        Args:
            grace: seconds it has to end by itself.
        """


ReviewerLaunch: TypeAlias = Callable[[Start], ReviewerProcess]
"""Starts a process, in a thread. Raises `IronCurtainError` or `OSError` if it cannot.

INVARIANT: what it starts ends with the proxy, however the proxy ends.
"""


@contextmanager
def prepared(spec: ProcessSpec, token: str, parent: Mapping[str, str]) -> "Iterator[Start]":
    """Prepare a start. Its descriptors are open until the block ends.

    Args:
        spec: which process.
        token: its token.
        parent: the proxy's own environment.
    """
    read, write = os.pipe()
    try:
        try:
            os.write(write, token.encode())
        finally:
            os.close(write)
        yield Start(
            name=spec.name,
            argv=spec.command,
            environment=_environment(spec, parent) | {TOKEN_FD: str(read)},
            inherited=(read,),
            secrets=(token, *[value for value in spec.env.values() if len(value) > 3]),  # noqa: PLR2004  shorter is no secret
        )
    finally:
        os.close(read)


def _environment(spec: ProcessSpec, parent: Mapping[str, str]) -> dict[str, str]:
    base = {name: value for name, value in parent.items() if name in BASE or name.startswith("LC_")}
    return {**base, **spec.env, REVIEWER_NAME: spec.name}


def launcher(directory: Path, log: Path) -> ReviewerLaunch:
    """Return a starter of processes. What they print goes to the session log, secrets masked."""
    rations: defaultdict[str, OutputLimit] = defaultdict(OutputLimit)
    session_log = SessionLog(log)

    def launch(start: Start) -> ServerProcess:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = spawn(
            ServerSpec(name=f"reviewer {start.name}", annotations="", command=start.argv[0]),
            environment=start.environment,
            cwd=str(directory),
            argv=start.argv,
            inherited=start.inherited,
        )
        masker = Masker(list(start.secrets))
        name = f"reviewer {start.name}"
        StderrDrain(name, process.take_stderr(), masker, session_log, rations[name])
        return process

    return launch


def redact(arguments: Mapping[str, Json]) -> Redacted:
    """Return a call's arguments, redacted as in the audit log, with longer texts."""
    # A text of which more characters are shown is cut there, where that is noticed.
    limits = RecordLimits(value=4 * MAX_ALL)
    shaped = shape_arguments(arguments, redaction=True, limits=limits)
    fields: Json = orjson.loads(shaped.raw)
    if not isinstance(fields, dict):
        return Redacted({}, complete=False)
    return Redacted(fields, complete=shaped.size is None)


# --- starts of the process ------------------------------------------------------------------------
# The restarts of a reviewer process, and when it is abandoned.
#
# Restarts are limited. The count begins anew after a while of readiness, so that a session of
# weeks does not lose its reviewer to six accidents.


PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until the next start; the last value repeats."""

WELL_AFTER: Final = 5.0
"""Seconds of readiness after which the count begins anew."""


class ProcessStarts(Struct):
    """The starts of one process. All times are monotonic seconds."""

    restarts: int
    """The number of restarts after the process has ended."""
    _starts: int = 0
    _not_before: float = 0.0
    _well_since: float | None = None

    def may_start(self, now: float) -> bool:
        """Return whether the process may be started now."""
        return not self.is_given_up and now >= self._not_before

    @property
    def is_given_up(self) -> bool:
        """Whether it will not be started again."""
        return self._starts > self.restarts

    def begin(self, now: float) -> None:
        """Note that the process is being started."""
        self._starts += 1
        self._well_since = None
        self._pause(now)

    def is_well(self, now: float) -> None:
        """Note that the process can be asked."""
        if self._well_since is None:
            self._well_since = now

    def end(self, now: float) -> None:
        """Note that the process has ended."""
        if self._well_since is not None and now - self._well_since >= WELL_AFTER:
            self._starts = 1
        self._well_since = None
        self._pause(now)

    def _pause(self, now: float) -> None:
        self._not_before = now + PAUSES[min(self._starts, len(PAUSES)) - 1]


_log: Final = logging.getLogger(__name__)

MAX_WARNINGS: Final = 100
"""The most invalid lines of one process that are logged."""

_GRACE: Final = 1.0
_MAX_BACKLOG: Final = 8 << 20
"""Bytes that the process has not read."""

_EXPIRED: Final = Declined(by=TIMEOUT, kind="expired")
_HAS_ENDED: Final = "its process has ended"
_ENDED: Final = PassedOn(_HAS_ENDED)
_NOT_STARTED: Final = PassedOn("its process could not be started", asked=False)


class _AskedQuestion(Struct, eq=False):
    escalation: Escalation
    answered: anyio.Event = msgspec.field(default_factory=anyio.Event)
    ruling: Ruling | None = None

    def rule(self, ruling: Ruling) -> None:
        """Set the answer; only the first counts."""
        if self.ruling is None:
            self.ruling = ruling
            self.answered.set()


class _Running(Struct, eq=False):
    """One run of the process."""

    process: ReviewerProcess
    dialect: Dialect
    reader: LineReader
    writer: LineWriter
    ready: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set once it can be asked, or never will be."""
    open: dict[str, _AskedQuestion] = msgspec.field(default_factory=dict)
    strange: int = 0
    """The number of lines that were no answers."""


class ProcessReviewer:
    """Asks a process. A `Reviewer`; works only while `run` does."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        clock: Clock,
        launch: ReviewerLaunch,
        redact: Redact,
        environ: Mapping[str, str],
        on_given_up: Callable[[str], None] | None = None,
    ) -> None:
        """Create the reviewer without starting its process.

        Args:
            spec: which process.
            clock: the time.
            launch: starts it.
            redact: redacts the arguments.
            environ: the proxy's environment, of which the process gets a few variables.
            on_given_up: called with its name when it is abandoned. Must return at once.
        """
        self._spec = spec
        self._clock = clock
        self._launch = launch
        self._redact = redact
        self._environ = environ
        self._queue = ReviewQueue(spec.at_once)
        self._starting = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._running: _Running | None = None
        self._lives = ProcessStarts(spec.restarts)
        self._on_given_up = on_given_up
        self._was_given_up = False

    def is_reachable(self) -> bool:
        """Return whether the process runs, is being started, or may be started now."""
        there = self._running is not None or self._starting.locked()
        return self._tasks is not None and (there or self._may_start())

    def warm(self) -> None:
        """Start or restart the process ahead of a question, and return at once."""
        if self._tasks is None or self._running is not None or self._starting.locked():
            return
        if self._may_start():
            self._tasks.start_soon(self._started)

    async def ask(self, escalation: Escalation, decision: EngineDecision = UNDECIDED) -> Ruling:
        """Ask the reviewer, and wait at most until the escalation's deadline."""
        seconds = (escalation.deadline - self._clock.steady()).total_seconds()
        ruling: Ruling = _EXPIRED
        with anyio.move_on_after(max(seconds, 0.0)):
            async with self._queue.turn(decision.urgency, escalation.created):
                ruling = await self._ask(escalation, decision)
        return ruling

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the process until cancelled, then end it and pass open questions on."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    # --- asking ----------------------------------------------------------------------------------

    async def _ask(self, escalation: Escalation, decision: EngineDecision) -> Ruling:
        running = await self._started()
        if isinstance(running, PassedOn):
            return running
        await running.ready.wait()
        if not running.dialect.is_open:
            return _NOT_STARTED
        if escalation.id in running.open:
            return PassedOn("it is already being asked about this", asked=False)
        try:
            view = view_of(escalation, decision, self._redact)
            deadline = on_the_wall(escalation.deadline, self._clock)
            shown = replace(escalation, deadline=deadline)
            line = running.dialect.question(shown, decision, view)
        except Exception:  # noqa: BLE001  what cannot be shown is not reviewed
            _log.warning("a call cannot be shown to reviewer %s", self._spec.name)
            return PassedOn("the call cannot be shown", asked=False)
        question = running.open[escalation.id] = _AskedQuestion(escalation)
        try:
            return unless_cut(await self._wait(running, question, line), view)
        finally:
            del running.open[escalation.id]
            cancel = running.dialect.release(escalation.id)
            if question.ruling is None:
                # Expired, or withdrawn. A question that it never read needs no cancellation.
                with suppress(BrokenPipeError):
                    running.writer.write(cancel)

    async def _wait(self, running: _Running, question: _AskedQuestion, line: bytes) -> Ruling:
        if running.writer.backlog > _MAX_BACKLOG:
            question.rule(PassedOn("it does not read what it is asked", asked=False))
        else:
            try:
                await running.writer.send(line)
            except BrokenPipeError:
                question.rule(_ENDED)
        await question.answered.wait()
        return question.ruling or _ENDED

    # --- answers ---------------------------------------------------------------------------------

    def _take(self, running: _Running, line: bytes | Oversize) -> str:
        """Handle a line. Return why the process can never be asked, or "" if it can be."""
        heard = running.dialect.hear(line)
        self._reply(running, heard.reply)
        problem = "" if heard.answer is None else self._use(running, heard.answer)
        if problem:
            self._warn(running, problem)
        over = running.open.get(heard.over)
        if over is not None:
            over.rule(PassedOn(problem))
        return heard.failed

    def _reply(self, running: _Running, reply: bytes) -> None:
        if not reply:
            return
        if running.writer.backlog > _MAX_BACKLOG:
            self._warn(running, "it does not read the replies")
        else:
            with suppress(BrokenPipeError):
                running.writer.write(reply)

    def _use(self, running: _Running, answer: ProcessAnswer | NoAnswer) -> str:
        """Apply an answer. Return why it does not count, or "" if it counts."""
        if isinstance(answer, NoAnswer):
            return answer.reason
        question = running.open.get(answer.id)
        if question is None or question.ruling is not None:
            return NOTHING_OPEN
        problem = self._problem(question.escalation, answer)
        if not problem:
            question.rule(self._ruling(question.escalation, answer))
        return problem

    def _problem(self, escalation: Escalation, answer: ProcessAnswer) -> str:
        if answer.arguments_hash != escalation.fingerprint:
            return "it answers something other than what was asked"
        if self._clock.steady() > escalation.deadline:
            # The machine was suspended past the deadline.
            return "it is late"
        return ""

    def _ruling(self, escalation: Escalation, answer: ProcessAnswer) -> Ruling:
        if is_same_party(answer.reviewer, escalation.session):
            _log.warning("reviewer %s: %s", self._spec.name, REVIEW_BY_REQUESTER)
            return PassedOn(REVIEW_BY_REQUESTER)
        by = Program(self._spec.name, "process")
        match answer.decision:
            case "approve":
                return Approved(by=by, note=answer.note)
            case "deny":
                return Declined(by=by, kind="denied", note=answer.note)

    def _warn(self, running: _Running, reason: str) -> None:
        running.strange += 1
        if running.strange <= MAX_WARNINGS:
            _log.warning("a line of reviewer %s does not count: %s", self._spec.name, reason)
        if running.strange == MAX_WARNINGS:
            _log.warning("reviewer %s: no more of these are logged", self._spec.name)

    # --- the process -----------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return self._lives.may_start(self._clock.monotonic())

    async def _started(self) -> _Running | PassedOn:
        async with self._starting:
            if self._running is not None:
                return self._running
            if self._tasks is None:
                return PassedOn("the proxy is ending", asked=False)
            if not self._may_start():
                return _ENDED
            self._lives.begin(self._clock.monotonic())
            # The first caller may give up meanwhile; others wait for it as well.
            with anyio.CancelScope(shield=True):
                self._running = await self._start()
            if self._running is None:
                self._see_whether_it_is_given_up()
            return self._running or _NOT_STARTED

    async def _start(self) -> _Running | None:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        dialect = self._spec.dialect(token)
        try:
            with prepared(self._spec, token, self._environ) as start:
                process = await anyio.to_thread.run_sync(self._launch, start)
            try:
                reader, writer = await open_wire(*process.take_wire(), max_line=dialect.max_line)
            except OSError:
                await anyio.to_thread.run_sync(process.end, _GRACE)
                raise
        except (IronCurtainError, OSError) as error:
            self._say_not_started(str(error))
            return None
        running = _Running(process, dialect, reader, writer)
        if self._tasks is None:
            await self._end(running)
            return None
        self._tasks.start_soon(self._listen, running)
        return running

    async def _listen(self, running: _Running) -> None:
        """Read the lines of the process until its output ends."""
        ending = f"it was not ready within {self._spec.ready_seconds:g} s"
        try:
            with anyio.move_on_after(self._spec.ready_seconds) as getting_ready:
                ending = await self._hear_out(running, getting_ready)
            if running.dialect.is_open:
                _log.warning("reviewer %s: %s", self._spec.name, ending)
            else:
                self._say_not_started(ending)
        finally:
            self._lose(running)
            await self._end(running)

    async def _hear_out(self, running: _Running, getting_ready: anyio.CancelScope) -> str:
        """Handle all lines, until the scope ends this. Return why it is over."""
        self._reply(running, running.dialect.hello())
        failed = ""
        while not failed:
            if running.dialect.is_open:
                self._lives.is_well(self._clock.monotonic())
                getting_ready.deadline = math.inf
                running.ready.set()
            line = await running.reader.receive()
            if line is None:
                return _HAS_ENDED
            failed = self._take(running, line)
            # Lines may come faster than they are read, so other tasks run in between.
            await anyio.lowlevel.checkpoint()
        return failed

    def _say_not_started(self, reason: str) -> None:
        _log.error("reviewer %s could not be started: %s", self._spec.name, reason)

    def _lose(self, running: _Running) -> None:
        if self._running is running:
            self._running = None
            self._lives.end(self._clock.monotonic())
            self._see_whether_it_is_given_up()
        running.ready.set()
        for question in list(running.open.values()):
            question.rule(_ENDED)

    def _see_whether_it_is_given_up(self) -> None:
        if not self._lives.is_given_up or self._was_given_up or self._tasks is None:
            return
        self._was_given_up = True
        _log.error(
            "reviewer %s is given up: it ended again and again; end this session when it is "
            "mended, and start another",
            self._spec.name,
        )
        if self._on_given_up is not None:
            self._on_given_up(self._spec.name)

    async def _end(self, running: _Running) -> None:
        running.writer.abort()
        running.reader.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.process.end, _GRACE)
