"""What a client's hook says, and what is answered: the words that all dialects share."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import Arguments, Json

HookClient: TypeAlias = Literal["claude", "codex", "gemini", "cursor", "copilot", "opencode"]
"""The clients whose hooks are known."""


class CallingAgent(Struct, frozen=True):
    """The agent that makes a call: the main agent, or one of its sub-agents."""

    id: str = ""
    """The client's id of the sub-agent; empty: the main agent."""
    kind: str = ""
    """The sub-agent's kind, such as `Explore`."""

    def __str__(self) -> str:
        """Return the caller in words, for a reviewer and for the record."""
        return f"sub-agent {self.kind} ({self.id})" if self.id else "main agent"


class BeforeCall(Struct, frozen=True, kw_only=True):
    """The client is about to make a call."""

    id: str
    """The client's id of the call; empty: the client gives none."""
    caller: CallingAgent
    tool: str
    """The client's own name of the tool."""
    calls: tuple[tuple[str, Arguments], ...]
    """The name in the common table, and the arguments: one for each file of a patch."""
    directory: str
    """Absolute."""
    has_dialog: bool = True
    """Whether the client asks its user where a hook tells it to."""


class OwnQuestion(Struct, frozen=True, kw_only=True):
    """The client is about to ask its user about a call, which has no id here."""

    caller: CallingAgent
    tool: str
    calls: tuple[tuple[str, Arguments], ...]
    directory: str
    """Absolute."""


class AfterCall(Struct, frozen=True, kw_only=True):
    """A call has ended, or its user refused it in the client's dialog."""

    id: str
    caller: CallingAgent
    tool: str
    calls: tuple[tuple[str, Arguments], ...]
    error: str = ""
    """The error in the client's words; empty: it succeeded."""
    is_refused: bool = False


class Prompt(Struct, frozen=True):
    """The user's words, or those that an agent gives to a sub-agent."""

    text: str
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


HookEvent: TypeAlias = (
    BeforeCall | OwnQuestion | AfterCall | Prompt | TurnEnded | SessionStarted | SessionEnded
)


class ShellText(Struct, frozen=True, kw_only=True):
    """What a client tells its shell to run: the command of a call, and its own words around it."""

    command: str
    """As the agent wrote it."""
    shell: str
    """Absolute."""
    directory_file: str
    """The file that gets the shell's last directory."""
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


AskingDialog: TypeAlias = Literal["always", "at a terminal", "never"]
"""Whether the client has a dialog that an answer can open. Where it has none, `ask` may run the
call, or hang."""


class HookDialect(Struct, frozen=True, kw_only=True):
    """What is particular to one client."""

    client: HookClient
    events: Mapping[str, int]
    """The hooked events, each with the seconds that the client waits."""
    own_tools: frozenset[str]
    """Tools without effect outside the client."""
    asks: AskingDialog
    reads: tuple[str, ...] = ()
    """Places of the client's own below the home, which its file tools read unasked; `{project}`
    stands for the client's name of the project."""
    makes: tuple[str, ...] = ()
    """Directories below the home that the client makes in a session. They are made before its
    sandbox is, which hides or shows only what is there."""
    writes: tuple[str, ...] = ()
    """Those of them that its file tools write unasked, too: plans and notes. Never settings, hooks,
    agents, commands or credentials."""
    seconds: float
    """The longest wait for a reviewer."""
    read_event: Callable[[str, Arguments], HookEvent]
    read_shell: Callable[[str, str], ShellText | None] | None = None
    """Reads what its shell prefix is given, with the home. None means that its commands cannot be
    held."""
    answer_before: Callable[[Verdict], Json]
    """The answer before a call, or None if nothing is printed."""
    answer_question: Callable[[Verdict], Json]


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


def object_of(payload: Arguments, name: str) -> Arguments:
    """Return an object of an event.

    Raises:
        UnreadableEventError: it is something else, or is not there.
    """
    found = payload.get(name)
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
