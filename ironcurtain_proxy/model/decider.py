"""Who settled an escalation: a closed union of kinds, with their rights and their words in records.

The rights stand on the class of a kind. `is_automatic` means that no person decided: the record
says `autoApproved`, and nothing is remembered unless the answer names it. `sight` is what was
looked at before the approval, and so the most that it can open beyond a sandbox. Every reader
matches the union whole, so that the type checker names all readers of a new kind.

Records, stores and answers hold texts, such as `human` or `reviewer:night-shift`. Only `in_record`
writes and only `of_record` reads them. What stands behind the first colon is a name, whatever it
looks like: `reviewer:engine:risk` is a reviewer of an odd name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias, assert_never

from msgspec import Struct

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
