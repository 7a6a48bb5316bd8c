"""The door of one client's native calls: each event of its hooks, and what is answered.

An event that cannot be read is denied where it may be. Calls under way are kept until the client
says that they have ended; what it never says is closed when the agent's turn ends.
"""

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Final, Literal, assert_never

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskGroup
from msgspec import Struct, field, structs

from ironcurtain_proxy.agent.replies import result_of
from ironcurtain_proxy.facts.client_tools import (
    ClientCalls,
    EquivalentCall,
    ServerCall,
    as_server_call,
)
from ironcurtain_proxy.hooks.client_end import CURRENT, HeldRun, OpenCall
from ironcurtain_proxy.hooks.events import (
    GATES,
    AfterCall,
    Approve,
    AskInClient,
    BeforeCall,
    CallingAgent,
    HookDialect,
    HookEvent,
    NoObjection,
    Prompt,
    Refuse,
    SessionEnded,
    SessionStarted,
    SettingsChanged,
    TurnEnded,
    UnreadableEventError,
    Verdict,
)
from ironcurtain_proxy.hooks.launching import chooses_shell, runs_what_agents_write
from ironcurtain_proxy.mediation.calls import Calls
from ironcurtain_proxy.model.decision import CONTAINMENT, DEFECT, Ground
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.reply import Answered, Reply
from ironcurtain_proxy.model.server import SHELL, ToolResult
from ironcurtain_proxy.model.values import Arguments, Json, list_of
from ironcurtain_proxy.sandbox.private_tmp import PLACES
from ironcurtain_proxy.shell.statements import leaves_jobs
from ironcurtain_proxy.strict_json import strict_json

_log: Final = logging.getLogger(__name__)

_MOST_OPEN: Final = 512
"""The most calls under way: more are denied."""
_MOST_BYTES: Final = 96 << 20
"""The most bytes of their events together. One alone always fits."""
_SETTLING: Final = 1.0
"""Seconds that a hook after a call waits for its record; at its end the client waits 1.5 in all."""
_MOST_SHOWN: Final = 1 << 16
"""The most bytes of an event that cannot be read in its record, before that is cut."""
UNREAD: Final = "unreadable"
"""Stands for the tool in the record of such an event."""
_UNKNOWN_TOOL: Final = "client-tool"
_OWN: Final = Ground("client-own-tool", "The tool changes the client's own state alone.")
_DEFECT: Final = "IronCurtain met a defect; its log says more. Nothing was run."
_GRAVER: Final[tuple[type[Verdict], ...]] = (NoObjection, Approve, AskInClient)
_LOOK: Final = 0.5
"""Seconds between two looks whether the hook still waits."""


class Door(Struct, kw_only=True):
    """The events of one client, and its calls under way."""

    dialect: HookDialect
    entry: Calls
    """The entry of mediation."""
    tasks: TaskGroup
    asks: bool
    """Whether the client's dialog can be opened."""
    observes: bool = False
    """Whether calls are only recorded, and nothing is denied."""
    on_prompt: Callable[[str], None]
    """Gets the user's words, or empty if there are none that count."""
    on_end: Callable[[], None]
    """Called when the client's last session has ended."""
    is_foreign: Callable[[], object] = bool
    """Whether a server of the project has our name and is not this proxy."""
    switched_off: Callable[[], object] = lambda: None
    """Returns the project's file that switches the hooks off, if there is one."""
    is_prefixed: bool = False
    """Whether the client starts commands by our prefix, as its last event says."""
    steering: Mapping[str, str] = {}
    """Variables of the last event by which a project, not the user, chooses what commands run."""
    path: str = ""
    """Where the commands of the client look for programs, as its last event says."""
    shell_path: str = ""
    """The same once their shell has prepared itself, as the last command that started says."""
    workspace: str = ""
    """Where its agents write."""
    given_in: Callable[[str], Mapping[str, str]] = lambda _directory: {}
    """Returns those that a project's files give to the commands of a directory alone."""
    why_native: str = ""
    """Why no command is held any more, or empty if it may be."""
    calls: int = 0
    """The number of calls that have been judged, of which this kernel alone knows."""
    _open: list[OpenCall] = field(default_factory=list)
    _given: dict[str, str] = field(default_factory=dict)
    _is_prompted: bool = False
    """Whether an agent has written a prompt for later, which will come as its user's."""
    _is_in_skill: bool = False
    """Whether the client may be about to run the commands in a skill."""
    is_turn: bool = False
    """Whether an agent is at work, so that a command is none of the user's own."""

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way."""
        return bool(self._open)

    async def answer(self, event: str, raw: bytes, is_waiting: Callable[[], bool]) -> bytes:
        """Return what the hook prints.

        Args:
            event: the name of the event, as the hook was installed for it.
            raw: what the client wrote.
            is_waiting: whether the hook still waits.
        """
        try:
            read = partial(self.dialect.read_event, event, _object(raw))
            # Files are looked at for a prompt, and meanwhile other hooks are answered.
            is_prompt = self.dialect.events[event] == "prompt"
            found = await anyio.to_thread.run_sync(read) if is_prompt else read()
        except Exception as error:  # noqa: BLE001  one event's defect must not end the session
            if not isinstance(error, UnreadableEventError | ValueError | RecursionError):
                _log.exception("an event %s met a defect", event)
            return await self.refuse_unread(event, raw, str(error)[:200])
        if isinstance(found, BeforeCall):
            found = structs.replace(found, size=len(raw))
        del raw
        try:
            verdict = await self._answer(found, is_waiting)
        except Exception:  # noqa: BLE001  as above
            _log.exception("an event %s met a defect", event)
            verdict = await self._refuse_broken(found)
        return _written({} if verdict is None else self.dialect.answer(event, verdict))

    async def refuse_unread(
        self, event: str, raw: bytes, why: str, other: HookDialect | None = None
    ) -> bytes:
        """Return what the hook prints for an event that cannot be read; a call is recorded.

        Args:
            event: its name.
            raw: what the client wrote.
            why: what is wrong with it.
            other: the dialect of the hook, if it is not one of this client.
        """
        _log.warning("an event %s cannot be read: %s", event[:40], why)
        dialect = other or self.dialect
        if dialect.events.get(event) == "prompt":
            # The earlier words say nothing of what the user wants now.
            self._prompt("")
        refusal: Verdict = NoObjection()
        if dialect.events.get(event) in GATES:
            self.calls += 1
            call = OpenCall(event=BeforeCall(tool=UNREAD), given=("", _shown(raw)))
            words = "IronCurtain cannot read the event of this call, so nothing was run."
            if other is not None:
                words = (
                    f"IronCurtain: {why}, so nothing was run. Tell the user to look at its files."
                )
            refusal = await self._refuse(call, "unreadable-event", words, why)
        return _written(dialect.answer(event, NoObjection() if self.observes else refusal))

    async def _refuse_broken(self, event: HookEvent) -> Verdict | None:
        """Return the verdict on an event that met a defect, and record it if it is a call's."""
        if self.observes or not isinstance(event, BeforeCall | SettingsChanged):
            return None
        if isinstance(event, BeforeCall):
            with suppress(Exception):
                call = OpenCall(event=event, given=event.calls[0])
                return await self._refuse(call, DEFECT.rule, _DEFECT)
        return Refuse(_DEFECT)

    async def _answer(self, event: HookEvent, is_waiting: Callable[[], bool]) -> Verdict | None:
        """Return the verdict on a call; None: the event asks for none."""
        if isinstance(event, BeforeCall):
            self.calls += 1
            self.is_turn = True
            if event.is_asked and self.observes:
                return NoObjection()
            judge = self._question if event.is_asked else self._before
            verdict = await judge(event, is_waiting)
            return NoObjection() if self.observes else verdict
        if isinstance(event, SettingsChanged):
            off = not self.observes and self.switched_off()
            why = f"{off} switches IronCurtain's hooks off, or reaches into them: it is not obeyed."
            return Refuse(why) if off else NoObjection()
        self._note(event)
        # The client goes on with its next call, whose point must not hold the changes of this one.
        with anyio.move_on_after(_SETTLING):
            for call in [one for one in self._open if one.ended.is_set()]:
                await call.recorded.wait()
        if isinstance(event, SessionEnded) and event.is_last:
            self.on_end()
        return None

    def _note(self, event: AfterCall | Prompt | TurnEnded | SessionStarted | SessionEnded) -> None:
        match event:
            case AfterCall():
                self._after(event)
            case Prompt(text=text, caller=caller):
                if caller == CallingAgent():
                    self._prompt(text)
            case TurnEnded(caller=caller):
                self.is_turn = self.is_turn and bool(caller.id)
                self._close([one for one in self._open if one.event.caller.id == caller.id])
            case SessionStarted():
                self.is_turn = False
                self.on_prompt("")
            case SessionEnded():
                self._close(self._open)
                self.on_prompt("")
            case _:
                assert_never(event)

    # --- before a call

    async def _before(self, event: BeforeCall, is_waiting: Callable[[], bool]) -> Verdict:
        self._is_prompted = self._is_prompted or event.tool in self.dialect.prompting_tools
        self._is_in_skill = event.tool in self.dialect.skill_tools
        if self.dialect.is_passed_by(event.tool, self.is_foreign):
            return NoObjection()
        if event.id and _key(event) in [_key(one.event) for one in self._open]:
            why = "IronCurtain: this call is under way already, so it was not run again."
            return await self._refuse(OpenCall(event=event, given=event.calls[0]), "under-way", why)
        # The client's dialog is closed when the same agent goes on: a call left to it that has no
        # end by now was refused there.
        asked = [one for one in self._open if isinstance(one.verdict, AskInClient)]
        self._close([one for one in asked if one.event.caller.id == event.caller.id])
        return await self._judged(event, is_waiting)

    async def _question(self, event: BeforeCall, is_waiting: Callable[[], bool]) -> Verdict:
        """Answer what the client is about to ask its user; `NoObjection` leaves it to the user.

        What policy or containment let go, the client's own rules may still ask about. Somebody who
        could have approved the call at the other door answers that question, too.
        """
        if self.dialect.is_passed_by(event.tool, self.is_foreign):
            return NoObjection()
        # A command that runs in a view has started, so the question is about another one.
        known = [one for one in self._same(event) if not (one.event.is_asked or one.is_held)]
        # Of some nobody but policy and containment was asked.
        told = [one.verdict for one in known if one.verdict and one.decider != CONTAINMENT]
        settled: list[Verdict] = [one for one in told if not isinstance(one, NoObjection)]
        if settled and len(settled) == len(known):
            return reduce(_graver, settled)
        # The call goes on as another one, whose answer has its own record.
        identifier = known[0].event.id if known else ""
        self._close(known, "the client asks its user before it makes the call")
        with anyio.move_on_after(_SETTLING):
            for one in known:
                await one.recorded.wait()
        return await self._judged(structs.replace(event, id=identifier), is_waiting)

    async def _judged(self, event: BeforeCall, is_waiting: Callable[[], bool]) -> Verdict:
        begun: list[OpenCall] = []
        verdict: Verdict = NoObjection()
        try:
            for tool, arguments in event.calls:
                is_unclear = self.dialect.paths.is_unclear(tool, arguments, event.directory)
                meant = "broken" if is_unclear else as_server_call(tool, arguments, event.directory)
                one = await self._decide(
                    OpenCall(event=event, given=(tool, arguments)), meant, begun, is_waiting
                )
                if isinstance(one, Refuse):
                    return one
                verdict = _graver(verdict, one)
            begun = []
        finally:
            for other in begun:
                other.end("another part of the call was denied, so nothing was run")
        return verdict

    async def _decide(
        self,
        call: OpenCall,
        meant: EquivalentCall,
        begun: list[OpenCall],
        is_waiting: Callable[[], bool],
    ) -> Verdict:
        if meant == "broken":
            why = (
                f"IronCurtain cannot tell what {visible(call.name)} is to act on. Write a "
                "path as it stands from the root, without `~`, `..` and `%`, and one plain address."
            )
            return await self._refuse(call, "unclear-arguments", why)
        is_own = call.event.tool in self.dialect.own_tools
        if meant == "none" and not (is_own or (self.asks and call.event.has_dialog)):
            return await self._refuse(call, _UNKNOWN_TOOL, _unknown(call, self.dialect))
        sizes = [one.event.size for one in self._open]
        if len(sizes) >= _MOST_OPEN or (any(sizes) and sum(sizes) + call.event.size > _MOST_BYTES):
            why = "IronCurtain: too many or too large calls are under way. Nothing was run."
            return await self._refuse(call, "too-many-calls", why)
        self._open.append(call)
        begun.append(call)
        scope = anyio.CancelScope()
        self.tasks.start_soon(self._carry, call, meant, scope)
        try:
            with anyio.move_on_after(self.dialect.patience):
                while call.verdict is None and is_waiting():
                    with anyio.move_on_after(_LOOK):
                        await call.decided.wait()
                if call.event.is_asked and call.verdict is None:
                    # The hook has ended, as it may once the client's user has answered.
                    call.left.set()
                    await call.decided.wait()
        finally:
            if call.verdict is None:
                scope.cancel()
                call.decide(Refuse("IronCurtain: nobody answered in time. Nothing was run."))
        return call.verdict or Refuse("")

    async def _refuse(self, call: OpenCall, rule: str, why: str, fault: str = "") -> Refuse:
        """Refuse a call that no policy is asked about, and record it. `fault`: for the record."""
        CURRENT.set(call)
        params: dict[str, Json] = {"arguments": {**call.given[1]}}
        await self.entry.refuse(call.name, params, Ground(rule, fault or why), "arguments")
        return Refuse(why)

    async def _leave(self, call: OpenCall) -> Reply:
        """Leave a call of a tool that no server has to the client, or to its user."""
        is_own = call.event.tool in self.dialect.own_tools
        ground = _OWN if is_own else Ground(_UNKNOWN_TOOL, _unknown(call, self.dialect))

        async def made() -> ToolResult:
            call.decide(NoObjection() if is_own else AskInClient(ground.reason))
            return await call.made()

        return await self.entry.leave(call.name, call.given[1], ground, made, is_asked=not is_own)

    async def _carry(
        self, call: OpenCall, meant: ServerCall | Literal["none"], scope: anyio.CancelScope
    ) -> None:
        """Carry a call through mediation, from its hook to its end."""
        CURRENT.set(call)
        try:
            if meant != "none" and meant.server == SHELL:
                meant = self._command(call, meant)
            with scope:
                if meant == "none":
                    reply = await self._leave(call)
                else:
                    name = f"{meant.server}__{meant.tool}"
                    params: dict[str, Json] = {"name": name, "arguments": {**meant.arguments}}
                    reply = await self.entry.handle(name, params)
                call.said = _in_words(reply, call.event.tool)
                call.has_failed = not (isinstance(reply, Answered) and not reply.result.has_failed)
                call.decide(Refuse(call.said))
        except Exception:  # noqa: BLE001  as above
            _log.exception("the call of %s met a defect", visible(call.name))
            if call.verdict is None:
                # What policy decided has its record.
                with suppress(Exception):
                    await self._refuse(call, DEFECT.rule, _DEFECT)
        finally:
            call.decide(Refuse(_DEFECT))
            self._open.remove(call)
            call.recorded.set()

    def _command(self, call: OpenCall, meant: ServerCall) -> ServerCall:
        """Note how a command is to run, and return it with the variables that steer it.

        So it is judged as if its agent had set them.
        """
        # Before it is judged: a link may be laid there meanwhile.
        call.directory = os.path.realpath(str(meant.arguments["cwd"]))
        call.why_native = self._why_native(call)
        # What is in a place for temporary files is there for commands in the sandbox alone.
        command = str(meant.arguments["command"])
        named = [one for one in (*PLACES, "TMPDIR") if one in command]
        call.in_view = not call.why_native and bool(named)
        # The client read its files when its session began, and they may have changed.
        self._given |= self.given_in(call.event.directory)
        steering = {**self.steering, **self._given}
        for path in (self.path, self.shell_path or self.path):
            if runs_what_agents_write(command, call.directory, path, self.workspace):
                steering.setdefault("PATH", path)
        if steering:
            call.is_steered = True
            texts = [f"{name}={shlex.quote(steering[name])}" for name in sorted(steering)]
            command = f"export {' '.join(texts)}; {command}"
        return structs.replace(meant, arguments={**meant.arguments, "command": command})

    def _why_native(self, call: OpenCall) -> str:
        """Return why a command cannot run in a view; empty if it can."""
        if self.why_native or not self.is_prefixed:
            return self.why_native or "commands of this client do not start by our shell prefix"
        if chooses_shell(self.steering):
            return "a project chooses the shell that starts it, or what that shell runs first"
        if call.goes_on:
            return "a job in the background would not see what others change meanwhile"
        if leaves_jobs(str(call.given[1].get("command"))):
            return "it leaves a job behind, which would end with its sandbox"
        return ""

    # --- the start of a command

    def start(self, command: str, directory: str) -> OpenCall | None:
        """Return the call that lets a command start now, which it does once, or None.

        Args:
            command: as the client has it.
            directory: where it would run, with all links followed.
        """
        # An equal call may be left to the client's user, who has not answered, or has refused: what
        # is to be held does not run by that one.
        for call in sorted(self._open, key=lambda one: not one.digest):
            is_it = call.is_awaited and call.directory == directory
            if is_it and call.given[1].get("command") == command:
                call.has_come = True
                if call.told is not None:
                    call.end(*call.told)
                return call
        return None

    async def judge(
        self, command: str, directory: str, is_waiting: Callable[[], bool]
    ) -> OpenCall | str:
        """Judge a command in a skill, for which no hook comes. Return why it may not start, if so.

        Where one that was let go has yet to start, it may be that one, changed by another hook.
        """
        if not self._is_in_skill or any(one.is_awaited for one in self._open):
            return "no call with this command was let go in this directory"
        calls: ClientCalls = (("Bash", {"command": command}),)
        call = BeforeCall(tool="Bash", calls=calls, directory=directory, has_dialog=False)
        return await self._judged_at_start(call, is_waiting)

    async def judge_again(
        self, call: OpenCall, path: str, is_waiting: Callable[[], bool]
    ) -> OpenCall | str:
        """Judge a command again that only policy let go and that its shell's own `PATH` steers.

        The hook is started without the shell, so it cannot know that. Return why it may not start,
        if so.
        """
        self.shell_path, command = path, str(call.given[1].get("command"))
        is_free = isinstance(call.verdict, NoObjection) and not (call.digest or call.is_steered)
        if not is_free or not runs_what_agents_write(command, call.directory, path, self.workspace):
            return call
        self._close([call], "the shell that starts it looks for programs where agents write")
        await call.recorded.wait()
        event = structs.replace(call.event, directory=call.directory, has_dialog=False)
        return await self._judged_at_start(event, is_waiting)

    async def _judged_at_start(
        self, event: BeforeCall, is_waiting: Callable[[], bool]
    ) -> OpenCall | str:
        verdict = await self._judged(event, is_waiting)
        if isinstance(verdict, Refuse):
            return verdict.why
        command = str(event.calls[0][1].get("command"))
        return self.start(command, event.directory) or "it has ended"

    def awaited(self) -> list[str]:
        """Return the commands that are to be held and have not started."""
        waiting = [one for one in self._open if one.digest and not one.has_come]
        return [str(one.given[1].get("command")) for one in waiting]

    def fetched(self, digest: str) -> HeldRun | None:
        """Return the client's process that waits for our own shell, which fetches it once."""
        for call in self._open:
            if call.digest == digest and call.run is not None and not call.run.is_fetched:
                call.run.is_fetched = True
                return call.run
        return None

    # --- after it

    def _same(self, event: BeforeCall | AfterCall) -> list[OpenCall]:
        """Return the calls under way that an event without an id speaks of."""
        alike = [
            one
            for one in self._open
            if one.event.caller.id == event.caller.id
            and one.event.tool == event.tool
            and one.given in event.calls
        ]
        return alike if len(event.calls) > 1 else alike[:1]

    def _after(self, event: AfterCall) -> None:
        # A call that the client asked about without a hook before it has no id here.
        by_id = [one for one in self._open if event.id and one.event.id == event.id]
        for call in by_id or [one for one in self._same(event) if not (event.id and one.event.id)]:
            error = event.error
            if event.is_refused:
                error = f"refused in the client: {error}"
            elif _targets([call.given])[0] not in _targets(event.calls):
                error = "it was changed after it was judged, in the client or by another hook"
                _log.warning("%s: %.500s", error, _targets(event.calls))
            call.left.set()
            if call.goes_on and self.is_prefixed and not (error or call.has_come):
                call.told = error, event.result
            else:
                call.end(error, event.result)

    def _prompt(self, text: str | None) -> None:
        """Take the user's words, unless a command is running that could have forged them."""
        self.is_turn, self._is_in_skill = True, (text or "").startswith("/")
        running = [
            one
            for one in self._open
            if one.given[0] == "Bash" and one.verdict is not None and not one.is_held
        ]
        if text is not None:
            self.on_prompt("" if running or self._is_prompted else text)
        self._close([one for one in self._open if one.event.caller == CallingAgent()])

    def _close(self, calls: list[OpenCall], why: str | None = None) -> None:
        """End calls that have a verdict or were asked about; `why`: what to say of their end."""
        for call in calls:
            if call.verdict is not None or call.event.is_asked:
                call.left.set()
                call.end(why)


def _key(event: BeforeCall) -> tuple[str, CallingAgent, str]:
    return event.id, event.caller, event.tool


def _shown(raw: bytes) -> Arguments:
    """Return an event that cannot be read as arguments of its record, which cuts and redacts it."""
    return {"event": raw[:_MOST_SHOWN].decode("utf-8", "replace"), "bytes": len(raw)}


def _unknown(call: OpenCall, dialect: HookDialect) -> str:
    tool = visible(call.name)
    if what := next(
        (one for one, names in dialect.asked_tools.items() if call.event.tool in names), ""
    ):
        return f"IronCurtain cannot hold the client's tool {tool}, which {what}."
    return (
        f"IronCurtain does not know what the tool {tool} does. Look at its arguments: it may "
        "belong to a server or a plugin, or be new in this version of the client."
    )


def _targets(calls: Iterable[tuple[str, Arguments]]) -> list[Json]:
    """Return what calls are about: the user may have changed the content in the client."""
    return [
        [tool, *[given.get(one) for one in ("command", "file_path", "notebook_path", "url")]]
        for tool, given in calls
    ]


def _object(raw: bytes) -> Arguments:
    document = strict_json(raw)
    if not isinstance(document, dict):
        raise UnreadableEventError("it is no object")
    return document


def _graver(one: Verdict, other: Verdict) -> Verdict:
    """Return the answer for a call of two parts, neither of which is refused."""
    return max(one, other, key=lambda verdict: _GRAVER.index(type(verdict)))


def _in_words(reply: Reply, tool: str) -> str:
    """Return the texts of an answer or a refusal, which are those of the other door."""
    blocks = list_of(result_of(reply, tool).get("content"))
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join([text for text in texts if isinstance(text, str)])


def _written(answer: Json) -> bytes:
    return b"" if answer is None else orjson.dumps(answer) + b"\n"
