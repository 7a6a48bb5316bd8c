"""A decision, its grounds, and who settled what it left open.

The policy decides `Allow`, `Escalate` or `Deny`, each with its ground. A decision is a value and is
never edited: what a reviewer adds stands beside it. The mediator has a few grounds of its own, such
as a call that cannot be recorded.

Who settles an escalation is a `Decider`, a closed union of kinds. The rights stand on the class of
a kind. `is_automatic` means that no person decided: the record says `autoApproved`, and nothing is
remembered unless the answer names it. `sight` is what was looked at before the approval, and so the
most that it can open beyond a sandbox. Every reader matches the union whole, so that the type
checker names all readers of a new kind.

Records, stores and answers hold texts, such as `human` or `reviewer:night-shift`. Only `in_record`
writes and only `of_record` reads them. What stands behind the first colon is a name, whatever it
looks like: `reviewer:engine:risk` is a reviewer of an odd name.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias, assert_never

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole

UNKNOWN_TOOL: Final = "structural-unknown-tool"
"""The rule of a ground that says that a tool has no annotation."""

Effect: TypeAlias = Literal["allow", "escalate", "deny"]
"""The effect of a decision as a word."""

SEVERITY: Final[Mapping[Effect, int]] = MappingProxyType({"allow": 0, "escalate": 1, "deny": 2})
"""The order of effects: deny > escalate > allow. The most severe of several decisions wins."""


class Ground(Struct, frozen=True):
    """The ground of a decision: the name of a rule or invariant, and a sentence of explanation."""

    rule: str
    reason: str


class Allow(Struct, frozen=True):
    """The call may be forwarded."""

    effect: ClassVar[Effect] = "allow"
    ground: Ground


class Escalate(Struct, frozen=True):
    """The call may be forwarded if a reviewer approves."""

    effect: ClassVar[Effect] = "escalate"
    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """The argument roles that escalated; empty when the rule named no role."""
    by_role: tuple[Ground, ...] = ()
    """The ground of each of these roles, in the same order, or empty if `ground` holds for all."""


class Deny(Struct, frozen=True):
    """The call is not forwarded. No approval can change that."""

    effect: ClassVar[Effect] = "deny"
    ground: Ground


Decision: TypeAlias = Allow | Escalate | Deny
"""A decision of the policy."""


def effect_of(decision: Decision) -> Effect:
    """Return the effect of a decision."""
    return decision.effect


class PriorConsent(Struct, frozen=True, kw_only=True):
    """Earlier consent of a person to parts of a call, besides the decision itself."""

    contained: frozenset[ArgumentRole] = frozenset()
    """The path roles whose values all lie in the workspace."""
    names_tool: bool = False
    """Rules allow the call, and each of them names the tool."""
    names_roles: frozenset[ArgumentRole] = frozenset()
    """The roles that rules allow, where each of these rules names the role or the tool."""


# --- grounds


CHANGED: Final = Ground("changed-meanwhile", "what it names changed while waiting")
"""The call differs from what was judged a moment ago."""

ENDED: Final = Ground("approval-ended", "an approval that it rests on ended while it waited")
"""A grant or a plan's budget that the call relied on has ended."""

WITHDRAWN: Final = Ground("withdrawn", "withdrawn before it was carried out")

OWN_TOOL: Final = Allow(Ground("own-tool", "The tool is the proxy's own and changes nothing"))

NOT_RECORDED: Final = Ground(
    "audit-unavailable", "the call cannot be recorded, so it is not carried out"
)

DEFECT: Final = Ground("internal-error", "the call could not be judged, so it is not carried out")

NO_ROOM: Final = Ground("too-large-together", "too many large calls are under way at once")


NO_TASKS: Final = Ground(
    "tasks-not-allowed",
    "calls that run as a task are not carried out: make the same call without task",
)

SUBSCRIBED_TO_TOO_MUCH: Final = Ground(
    "too-many-subscriptions", "the session has too many subscriptions: end those that are done"
)


NOT_AVAILABLE: Final = Ground(
    "not-available",
    "There is nothing of this name that may be used here. Tell the user: where the server has it, "
    "the operator can annotate and allow it",
)
"""The answer for a prompt or template that is not listed, whether or not its server has it. The
record has the ground of the denial."""

HELD_RULE: Final = "pinned"
HELD_ADVICE: Final = (
    "Nothing was done. Do not retry: tell the user that the server's description of it changed, "
    "and that the operator has to look at the change and accept it."
)
"""The advice on every part that differs from what a person accepted."""


def held_part(what: str, why: str) -> Ground:
    """Return the ground where a prompt, a template or a view differs from what was accepted."""
    return Ground(HELD_RULE, f"The {what} {why}. {HELD_ADVICE}")


def asking_answer(asked: str) -> Ground:
    """Return the ground where an answer carries a question, and no server may ask."""
    return Ground(
        "server-asks", f"the server's answer asks for something ({asked}), which no setting allows"
    )


# --- decider


Sight: TypeAlias = Literal["question", "command", "nothing"]
"""What was looked at. `question`: everything that a question shows, also what would be opened.
`command`: the text of the call alone, so no path is opened and no host that the text does not name.
`nothing`: no access beyond the sandbox was looked at."""

ProgramKind: TypeAlias = Literal["model", "process", "session", "named"]
"""`session`: another session, whose answers bear a token. `named`: whoever answered in the common
mailbox under a name; nothing proves that it is a person."""


DeciderWord: TypeAlias = Literal[
    "human",
    "reviewer",
    "auto-approver",
    "engine",
    "grant",
    "containment",
    "client",
    "kernel",
    "timeout",
    "signed",
]
"""The kind in a record, before the colon."""


class Person(Struct, frozen=True):
    """A person: at a terminal, the mailbox, the agent's client, or behind the embedding program."""

    word: ClassVar[DeciderWord] = "human"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "question"


class Program(Struct, frozen=True):
    """A reviewer that is a program, or that cannot be told from one."""

    name: str
    kind: ProgramKind
    word: ClassVar[DeciderWord] = "reviewer"
    is_automatic: ClassVar[bool] = True
    sight: ClassVar[Sight] = "question"


class Signers(Struct, frozen=True):
    """Persons who signed their answers with keys of `reviewers.json`."""

    persons: tuple[str, ...]
    word: ClassVar[DeciderWord] = "signed"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "question"


class LlmApprover(Struct, frozen=True):
    """The LLM approver, which compares a call with the user's own words."""

    word: ClassVar[DeciderWord] = "auto-approver"
    is_automatic: ClassVar[bool] = True
    sight: ClassVar[Sight] = "command"


class Engine(Struct, frozen=True):
    """The auto-confirm engine."""

    check: str
    """The check of the engine that decided, such as `risk`."""
    word: ClassVar[DeciderWord] = "engine"
    is_automatic: ClassVar[bool] = True
    sight: ClassVar[Sight] = "command"


class Grants(Struct, frozen=True):
    """Remembered approvals, or an approved plan: together they name all that the call opens."""

    ids: tuple[str, ...]
    word: ClassVar[DeciderWord] = "grant"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "question"


class Contained(Struct, frozen=True):
    """Containment: the sandbox confines the call, and the timeline can undo it."""

    word: ClassVar[DeciderWord] = "containment"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "nothing"


class ClientDialog(Struct, frozen=True):
    """The client's own dialog, where nobody else could be asked: its user answers there.

    Nobody has answered yet when the call is let go to the client.
    """

    word: ClassVar[DeciderWord] = "client"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "nothing"


class ProxyItself(Struct, frozen=True):
    """The proxy itself, by its policy or because an answer could not be accepted."""

    word: ClassVar[DeciderWord] = "kernel"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "nothing"


class Nobody(Struct, frozen=True):
    """Nobody answered in time."""

    word: ClassVar[DeciderWord] = "timeout"
    is_automatic: ClassVar[bool] = False
    sight: ClassVar[Sight] = "nothing"


Decider: TypeAlias = (
    Person
    | Program
    | Signers
    | LlmApprover
    | Engine
    | Grants
    | Contained
    | ClientDialog
    | ProxyItself
    | Nobody
)
"""The party that settled an escalation."""

HUMAN: Final = Person()
CONTAINMENT: Final = Contained()
IN_CLIENT: Final = ClientDialog()
KERNEL: Final = ProxyItself()
TIMEOUT: Final = Nobody()
AUTO_APPROVER: Final = LlmApprover()


def name_of(decider: Decider) -> str:
    """Return the name of a reviewer, the engine's check or the grants' ids; empty if none."""
    match decider:
        case Program(name=name):
            return name
        case Engine(check=check):
            return check
        case Grants(ids=ids):
            return "+".join(ids)
        case Signers(persons=persons):
            return "+".join(persons)
        case Person() | LlmApprover() | Contained() | ClientDialog() | ProxyItself() | Nobody():
            return ""
        case _:
            assert_never(decider)


@lru_cache(maxsize=256)
def in_record(decider: Decider) -> str:
    """Return a decider in the words of records, such as `reviewer:night-shift`."""
    name = name_of(decider)
    return f"{decider.word}:{name}" if name else decider.word


def of_record(text: str, kind: object = None) -> Decider | None:
    """Read the decider of a record; return None if no version of this program wrote it.

    Args:
        text: such as `reviewer:night-shift`.
        kind: the record's `reviewerKind`.
    """
    word, colon, name = text.partition(":")
    plain = _PLAIN.get(word)
    if plain is not None:
        return None if colon else plain
    match word:
        case "reviewer" if name:
            return Program(name, _KINDS.get(kind, "named"))
        case "engine" if name:
            return Engine(name)
        case "grant" if name:
            return Grants(tuple(name.split("+")))
        case "signed" if name:
            return Signers(tuple(name.split("+")))
        case _:
            return None


_PLAIN: Final[Mapping[str, Decider]] = MappingProxyType(
    {in_record(one): one for one in (HUMAN, AUTO_APPROVER, CONTAINMENT, IN_CLIENT, KERNEL, TIMEOUT)}
)
_KINDS: Final[Mapping[object, ProgramKind]] = MappingProxyType(
    {"model": "model", "process": "process", "session": "session"}
)
