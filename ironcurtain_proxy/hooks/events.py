"""What a client's hook says, what is answered, and the declaration of one client's dialect."""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from ironcurtain_proxy.facts.client_tools import ClientCalls, ClientTools
from ironcurtain_proxy.hooks.paths import PathForm
from ironcurtain_proxy.model.values import Arguments, Json
from ironcurtain_proxy.strict_json import strict_json

HookClient: TypeAlias = str
"""The name of a client, one of those in `dialects`."""
_SECONDS: Final[Mapping[str, int]] = {"prompt": 30, "end": 5}
"""How long a client waits at most, by the kind of the event; else a minute."""
_IN_TIME: Final = 15
"""Seconds by which an answer comes before the client stops waiting."""


class CallingAgent(Struct, frozen=True):
    """The agent that makes a call: the main agent, or one of its sub-agents."""

    id: str = ""
    """The client's id of the sub-agent; empty: the main agent."""
    kind: str = ""
    """The sub-agent's kind, such as `Explore`."""

    def __str__(self) -> str:
        """Return the caller in words, for a reviewer and for the record."""
        return f"sub-agent {self.kind} ({self.id})" if self.id else "main agent"


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call by a tool of the client's own, or of a server that the client started."""

    caller: CallingAgent = CallingAgent()
    tool: str
    """The client's own name of the tool."""
    calls: ClientCalls = ()
    """The name in the common table, and the arguments: one for each file of a patch."""


class BeforeCall(ToolCall, frozen=True, kw_only=True):
    """The client is about to make a call."""

    id: str = ""
    """The client's id of the call; empty: the client gives none."""
    directory: str = "/"
    """Absolute."""
    has_dialog: bool = True
    """Whether the client asks its user where a hook tells it to."""
    is_asked: bool = False
    """Whether the client is about to ask its user about it. Then it has no id here."""
    size: int = 0
    """Bytes of the event."""


class AfterCall(ToolCall, frozen=True, kw_only=True):
    """A call has ended, or its user refused it in the client's dialog."""

    id: str
    error: str = ""
    """The error in the client's words; empty: it succeeded."""
    result: Json = None
    """What the agent gets, as the client says it."""
    is_refused: bool = False


class Prompt(Struct, frozen=True):
    """The user's words, or those that an agent gives to a sub-agent."""

    text: str | None
    """Empty: words that may not be the user's; None: the client's own, so the last ones stay."""
    caller: CallingAgent = CallingAgent()
    """Who got them: only those of the main agent are the user's."""


class TurnEnded(Struct, frozen=True):
    """An agent has ended its turn: none of its calls goes on."""

    caller: CallingAgent


class SessionStarted(Struct, frozen=True):
    """A session has begun, or goes on."""


class SessionEnded(Struct, frozen=True):
    """A session has ended."""

    is_last: bool
    """Whether the client's process ends, too."""


class SettingsChanged(Struct, frozen=True):
    """A file with settings has changed, and the client is about to obey it."""


HookEvent: TypeAlias = (
    BeforeCall | AfterCall | Prompt | TurnEnded | SessionStarted | SessionEnded | SettingsChanged
)


class ShellText(Struct, frozen=True, kw_only=True):
    """What a client tells its shell to run: the command of a call, and its own words around it."""

    command: str
    """As the agent wrote it."""
    shell: str
    """Absolute."""
    directory_file: str
    """The file that gets the shell's last directory."""
    before: str
    """What the shell does before the command."""
    is_known: bool
    """Whether all words around the command are the client's own, as far as they are known."""


class NoObjection(Struct, frozen=True):
    """The policy allows the call; the client's own rules decide the rest."""


class Approve(Struct, frozen=True):
    """The call was contained, or approved by a reviewer or by an earlier approval."""

    why: str


class AskInClient(Struct, frozen=True):
    """The call needs an approval, and the client's user is the one who can give it."""

    why: str


class Refuse(Struct, frozen=True):
    """The call is denied."""

    why: str


Verdict: TypeAlias = NoObjection | Approve | AskInClient | Refuse
"""The answer before a call."""


class UnreadableEventError(Exception):
    """An event does not have the form that its client documents; the message says what is wrong."""


def text_of(payload: Arguments, name: str) -> str:
    """Return a text of an event, empty if it is not there.

    Raises:
        UnreadableEventError: it is something else.
    """
    found = payload.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise UnreadableEventError(f"{name} is no text")
    return found


def object_of(payload: Arguments, name: str, *, is_json: bool = False) -> Arguments:
    """Return an object of an event, also one that stands there as JSON if that may be.

    Raises:
        UnreadableEventError: it is something else, or is not there.
    """
    found = payload.get(name)
    if is_json and isinstance(found, str):
        try:
            found = strict_json(found.encode())
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        raise UnreadableEventError(f"{name} is no object")
    return found


def directory_of(payload: Arguments) -> str:
    """Return the directory of an event.

    Raises:
        UnreadableEventError: it is not absolute.
    """
    found = text_of(payload, "cwd")
    if not found.startswith("/") or "\0" in found:
        raise UnreadableEventError("cwd is no absolute directory")
    return found


AskingDialog: TypeAlias = Literal["always", "at a terminal", "never"]
"""Whether the client has a dialog that an answer can open. Where it has none, `ask` may run the
call, or hang."""


def table(text: str) -> dict[str, str]:
    """Return a table from a text with pairs of words, each with a comma behind it but the last."""
    return {pair[0]: pair[1] for pair in map(str.split, text.split(","))}


_CallKind: TypeAlias = Literal["before", "server", "question", "after", "failed", "refused"]
EventKind: TypeAlias = _CallKind | Literal["settings", "prompt", "turn", "start", "end"]
"""What an event says: a call is about to be made, by a tool of the client's own or by a server;
the client is about to ask its user; a call has ended, failed, or was refused in the client;
settings have changed, which the client is about to obey; the user's words; the end of a turn; the
start and the end of a session."""


GATES: Final[frozenset[EventKind]] = frozenset({"before", "server", "question", "settings"})
"""The events at which a call or a change can be denied."""

_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]")
WHY: Final = "{why}"
"""Stands for the reason in the form of an answer."""


class AnswerForms(Struct, frozen=True, kw_only=True):
    """What a client is answered, exactly: one field more makes some of them run the call."""

    silence: Json = msgspec.field(default_factory=dict)
    """Where nothing stands against the call. It is None if nothing is printed."""
    approve: Json = None
    """None: silence."""
    ask: Json = None
    """None: the client has no such answer, and the call is refused."""
    refuse: Json

    def of(self, verdict: Verdict) -> Json:
        """Return the answer for a verdict."""
        match verdict:
            case NoObjection():
                return self.silence
            case Approve(why=why):
                return self.silence if self.approve is None else _with_reason(self.approve, why)
            case AskInClient(why=why):
                return _with_reason(self.refuse if self.ask is None else self.ask, why)
            case Refuse(why=why):
                return _with_reason(self.refuse, why)
            case _:
                assert_never(verdict)


def _with_reason(form: Json, why: str) -> Json:
    if isinstance(form, dict):
        return {name: _with_reason(value, why) for name, value in form.items()}
    # Codex runs a call that is denied without a reason.
    return (why or "IronCurtain denies it") if form == WHY else form


class FieldNames(Struct, frozen=True, kw_only=True):
    """The names of the fields of an event; those of Claude Code where nothing else is said."""

    tool: str = "tool_name"
    given: str = "tool_input"
    id: str = "tool_use_id"
    agent: str = "agent_id"
    agent_kind: str = "agent_type"
    error: str = "error"
    is_json: bool = False
    """Whether the arguments may be a text, of JSON."""
    result: str = "tool_response"


class HookLine(Struct, frozen=True, kw_only=True):
    """What is written into a client's file for one event."""

    words: tuple[str, ...]
    """The command and its arguments."""
    seconds: int
    """How long the client is to wait."""
    denies: bool
    """Whether a call is to be denied if the command fails."""

    @property
    def text(self) -> str:
        """The command for a client that hands it to a shell."""
        return "exec " + shlex.join(self.words)

    def hook(self, **more: Json) -> Json:
        """Return an entry as most clients have it; `more`: what one of them has instead."""
        one: Json = {"type": "command", "command": self.text, "timeout": self.seconds, **more}
        return {"hooks": [one]}


class ShellPrefix(Struct, frozen=True, kw_only=True):
    """How a client lets another program start the commands of its shell."""

    variable: str
    """The client's variable with that program."""
    read: Callable[[str, str], ShellText | None]
    """Reads what the program is given, with the client's directory, or None if it is no command of
    the agent's."""


class ClientPlaces(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a client's own files lie, from the home."""

    directory: str
    """Its own directory: a user of the client has it."""
    file: str
    """The user's file with hooks, from that directory."""
    transcripts: str
    """Its own records of its sessions, as a pattern."""
    moved_by: tuple[str, str] = ("", "")
    """The variable that names another directory, and what is below that."""
    closed: tuple[str, ...] = ()
    """Other files of that directory that it obeys, or keeps logins and prompts in. In the usual one
    they are closed, or asked about, by name."""
    reads: tuple[str, ...] = ()
    """What its file tools read unasked; `{project}` stands for the client's name of the project,
    and after `/**/` stand the last names of a file."""
    makes: tuple[str, ...] = ()
    """Directories that it makes in a session. They are made before its sandbox is, which hides or
    shows only what is there."""
    writes: tuple[str, ...] = ()
    """Those of `reads` that its file tools write unasked, too: plans and notes. Never settings,
    hooks, agents, commands or credentials."""


class _Known(Struct, frozen=True, forbid_unknown_fields=True):
    programs: tuple[str, ...]
    events: Mapping[str, EventKind]
    places: ClientPlaces
    own: frozenset[str]
    asked: Mapping[str, frozenset[str]] = {}
    sets: Mapping[str, str] = {}


_KNOWN: Final = msgspec.toml.decode(
    Path(__file__).with_name("clients.toml").read_bytes(), type=dict[HookClient, _Known]
)


class HookDialect(Struct, frozen=True, kw_only=True):
    """All that is particular to one client."""

    client: HookClient
    gate_seconds: int = 600
    """How long the client waits before a call."""
    fields: FieldNames = FieldNames()
    prompting_tools: frozenset[str] = frozenset()
    """Those by which an agent writes a prompt for later, which comes as its user's."""
    skill_tools: frozenset[str] = frozenset()
    """Those that put a skill into the conversation, whose commands the client runs by itself."""
    our_tools: tuple[str, ...]
    """The beginnings of the names of tools that are judged at the other door: this proxy's."""
    tools: ClientTools | None = None
    """Its tools by their own names, or None if they have the names of the common table."""
    calls_of: Callable[[str, Arguments], ClientCalls] | None = None
    """The calls of a tool, where more is to be said than the table does."""
    asks: AskingDialog
    asking_modes: frozenset[str] = frozenset()
    """The modes in which `ask` opens a dialog, or empty if it is in all."""
    before: AnswerForms
    question: AnswerForms = AnswerForms(refuse={})
    """The answers to the client's own question. Silence leaves it to its user."""
    settings: AnswerForms = AnswerForms(refuse={})
    """The answers to a change of settings. Silence lets the client obey it."""

    # The files of the client.
    document: Mapping[str, Json] = {}
    """What a new file holds."""
    has_comments: bool = False
    """Whether the client takes comments in that file; others then leave all of it out."""
    entry: Callable[[HookLine], Json]
    """The entry of one event in that file."""
    plugin: tuple[str, Path] | None = None
    """The program that reads the file, for a client that has no hooks in one: its name beside the
    file, and our copy."""
    notice: str = ""
    """What its user has to know or do after the hooks were put in."""
    project_files: tuple[str, ...] = ()
    """A project's own settings, which may switch hooks off."""
    server_files: tuple[tuple[str, str], ...] = ()
    """A project's own files with servers, as patterns, each with the key of its table; without a
    key it is a text that may declare servers of a sub-agent."""
    is_off: Callable[[Mapping[str, object]], bool] = lambda _document: False
    """Whether such a file switches them off."""
    overrules: Callable[[Mapping[str, object]], bool] = lambda _document: False
    """Whether a project's file has hooks whose answers go before ours."""
    sets_in: Callable[[Mapping[str, object]], Mapping[str, str]] | None = None
    """The variables that such a file gives to commands alone, so that no hook has them."""
    alarm: Callable[[Path, Path], str] = lambda _directory, _project: ""
    """What else keeps the hooks from coming, by the client's directory and the project, or empty
    if nothing is known."""
    prefix: ShellPrefix | None = None
    """None: the commands of its shell cannot be held."""
    project: Callable[[Path, str], str] = lambda _directory, project: _NO_WORD.sub("-", project)
    """The client's name of a project by the client's directory and that of the project, or empty
    if it has none."""
    # What is read of an event in a way of the client's own.
    paths: PathForm = PathForm()
    directory: Callable[[Arguments], str] = directory_of
    server: Callable[[Arguments], str] = lambda _payload: ""
    """The tool's name in an event before a server's call."""
    prompt: Callable[[Arguments], str | None] = lambda payload: text_of(payload, "prompt")
    """The text of `Prompt`."""
    has_failed: Callable[[Arguments], bool] = lambda _payload: False
    """Whether a call that has ended failed, where no event of its own says so."""
    is_last: Callable[[str], bool] = lambda _reason: True
    """Whether the client's process ends, too, by the reason of a session's end."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the client's own program."""
        return _KNOWN[self.client].programs

    @property
    def places(self) -> ClientPlaces:
        """Where its own files lie."""
        return _KNOWN[self.client].places

    @property
    def events(self) -> Mapping[str, EventKind]:
        """The hooked events."""
        return _KNOWN[self.client].events

    @property
    def own_tools(self) -> frozenset[str]:
        """Tools without effect outside the client, or whose calls arrive one by one."""
        return _KNOWN[self.client].own

    @property
    def asked_tools(self) -> Mapping[str, frozenset[str]]:
        """Other tools that are known, by what they do, in words that follow "which"."""
        return _KNOWN[self.client].asked

    @property
    def sets(self) -> Mapping[str, str]:
        """The variables that it sets itself."""
        return _KNOWN[self.client].sets

    @property
    def patience(self) -> float:
        """The longest wait for a reviewer, in seconds, so that the answer comes in time."""
        return self.gate_seconds - _IN_TIME

    def seconds(self, event: str) -> int:
        """Return how long the client waits at an event, in seconds."""
        kind = self.events[event]
        return self.gate_seconds if kind in GATES else _SECONDS.get(kind, 60)

    def is_passed_by(self, tool: str, is_foreign: Callable[[], object] = bool) -> bool:
        """Return whether calls of a tool are not judged here.

        Args:
            tool: the client's own name of it.
            is_foreign: whether a server that is not this proxy has our name.
        """
        return tool.startswith(self.our_tools) and not is_foreign()

    def answer(self, event: str, verdict: Verdict) -> Json:
        """Return the answer to an event, or None if nothing is printed."""
        kind = self.events[event]
        if kind != "question":
            return (self.settings if kind == "settings" else self.before).of(verdict)
        return self.question.of(NoObjection() if isinstance(verdict, AskInClient) else verdict)

    def read_event(self, event: str, payload: Arguments) -> HookEvent:
        """Return an event.

        Raises:
            UnreadableEventError: it does not have the form that its client documents.
        """
        kind = self.events[event]
        agent = text_of(payload, self.fields.agent)
        caller = CallingAgent(agent, text_of(payload, self.fields.agent_kind) if agent else "")
        match kind:
            case "before" | "server" | "question" | "after" | "failed" | "refused":
                return self._of_call(kind, payload, caller)
            case "prompt":
                return Prompt(text_of(payload, "prompt") if agent else self.prompt(payload), caller)
            case "turn":
                return TurnEnded(caller)
            case "start":
                return SessionStarted()
            case "settings":
                return SettingsChanged()
            case "end":
                return SessionEnded(is_last=self.is_last(text_of(payload, "reason")))
            case _:
                assert_never(kind)

    def _of_call(
        self,
        kind: _CallKind,
        payload: Arguments,
        caller: CallingAgent,
    ) -> BeforeCall | AfterCall:
        tool, calls = self._calls(kind, payload)
        identifier = text_of(payload, self.fields.id)
        if kind in {"after", "failed", "refused"}:
            error = ""
            if kind != "after" or self.has_failed(payload):
                said = payload.get(self.fields.error) or payload.get("reason") or "the call failed"
                error = str(said)[:500]
            # Cursor says of one event which of the two it is.
            is_refused = kind == "refused" or payload.get("failure_type") == "permission_denied"
            return AfterCall(
                id=identifier,
                caller=caller,
                tool=tool,
                calls=calls,
                error=error,
                result=payload.get(self.fields.result),
                is_refused=is_refused,
            )
        mode, is_asked = text_of(payload, "permission_mode"), kind == "question"
        return BeforeCall(
            id="" if is_asked else identifier,
            caller=caller,
            tool=tool,
            calls=calls,
            directory=self.directory(payload),
            has_dialog=is_asked or not self.asking_modes or mode in self.asking_modes,
            is_asked=is_asked,
        )

    def _calls(self, kind: EventKind, payload: Arguments) -> tuple[str, ClientCalls]:
        if kind == "server":
            tool = self.server(payload)
            return tool, ((tool, {}),)
        tool = text_of(payload, self.fields.tool)
        if not tool:
            raise UnreadableEventError(f"{self.fields.tool} is not there")
        given = object_of(payload, self.fields.given, is_json=self.fields.is_json)
        if self.calls_of is not None:
            return tool, self.calls_of(tool, given)
        return tool, ((tool, given),) if self.tools is None else self.tools.calls(tool, given)
