"""An escalation: an open question to a reviewer, its text for a person, and its ruling.

Names and arguments come from an agent. Invisible characters and those that change how their
neighbours are displayed (control, bidirectional, zero-width, filler characters, odd spaces) are
shown as escapes. Every argument stands on one line of its own, so that none can imitate the
proxy's words. A name with a blank or a sign of punctuation in it could go on as a sentence of the
proxy's own; so such a name stands in quotes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal, NewType, TypeAlias
from unicodedata import east_asian_width

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole, Capability
from ironcurtain_proxy.model.decision import HUMAN, Decider, Ground
from ironcurtain_proxy.model.grant import Candidate, Pattern, SandboxOpening, shown_host
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.request import NOWHERE, AccessRequest, CommandPlace, ParsedCommand
from ironcurtain_proxy.model.signing import SignatureNeed
from ironcurtain_proxy.model.values import Arguments, Json, WithNotes, lazy

EscalationId = NewType("EscalationId", str)
"""A random UUID. Files are named by it, so it has no other form."""

FOREVER: Final = timedelta(days=36_500)
"""The time for an answer where a question waits until it is answered."""
APPROVAL_LASTS: Final = timedelta(seconds=300)
"""The time for which an approval waits until the call is repeated."""

Origin: TypeAlias = Literal["policy", "capability", "tool-policy", "secrets", "target"]
"""The kind of check that asked for a review."""


NAMED_BY_LINE: Final = "Named by"
"""The context that says who named the targets of a call, and how long ago. It is shown and no
more: an answer holds although another result names a target meanwhile."""

FOR_PEOPLE: Final[frozenset[Origin]] = frozenset({"secrets", "target"})
"""The origins that no grant, no model and no containment settles."""


class OriginReason(Struct, frozen=True, kw_only=True):
    """One reason for a review: its origin and an explanation."""

    origin: Origin
    ground: Ground
    capabilities: tuple[Capability, ...] = ()
    """The capabilities that need approval, where the origin is `capability`."""
    profile: str = ""
    """The capability profile that asks, where the origin is `capability`."""


class Escalation(Struct, frozen=True, kw_only=True):
    """One call that needs a reviewer, with everything that a reviewer should see."""

    id: EscalationId
    session: str
    server: str
    """The operator's name of the server."""
    tool: str
    exposed_name: str
    """The tool's name as the agent used it."""
    arguments: Arguments
    """The arguments as they would be sent."""
    request: AccessRequest
    """The resources that the arguments name, by role."""
    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """The argument roles that escalated."""
    reasons: tuple[OriginReason, ...] = ()
    """All reasons for the review, the policy first. One answer settles all of them. Empty: the
    policy alone."""
    told: tuple[str, ...] = ()
    """What the call does, in sentences, the gravest first. Empty: the ground says more."""
    context: tuple[tuple[str, str], ...] = ()
    """Additional facts for the reviewer, such as `("Working directory", "/srv/repo")`."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where there is one."""
    place: CommandPlace = NOWHERE
    """The place where that command runs."""
    branch: str | None = None
    """The branch of the repository that the call works in, or None if it is not known."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    held: bool = False
    """Whether the parts of a shell command that stay inside the sandbox run unasked, because the
    timeline can take them back."""
    definition: str = ""
    """SHA-256 of the tool's definition; of a plan, of everything that its calls name."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that an approval opens. `context` shows all of it."""
    alone: tuple[str, ...] = ("it is not known to be harmless",)
    """Why "approve all" leaves the call out; empty if it is known to be harmless."""
    for_people: bool = False
    """Whether only a person may answer, neither a model nor the engine: the question covers several
    calls, a secret would leave, or the operator asks who named a target."""
    acts_by_itself: bool = False
    """Whether programs act by themselves on a file that the call changes."""
    signing: SignatureNeed | None = None
    """The signatures that an approval needs; `None` means that any reviewer may answer."""
    caller: Caller | None = None
    """Who makes the call; see `Operation.caller`."""
    editable: bool = False
    """Whether a person may change arguments and approve the changed call."""
    candidates: tuple[Pattern, ...] = ()
    """The grants that an approval may remember. An answer names one by its index."""
    fingerprint: str
    """SHA-256 over server, tool and arguments."""
    policy_version: str
    created: datetime
    """Aware, UTC."""
    deadline: datetime
    """Aware, UTC; after it the call is refused."""

    def chosen(self, remember: Candidate | int | None) -> Pattern | None:
        """Return the candidate that an approval names, or None if none, or an unknown one.

        `True` is no index.
        """
        if isinstance(remember, Candidate):
            return next((one for one in self.candidates if one == remember), None)
        if isinstance(remember, bool) or not isinstance(remember, int):
            return None
        return self.candidates[remember] if 0 <= remember < len(self.candidates) else None

    @property
    def why(self) -> str:
        """The first sentence of the question: what leaves or is lost, else the ground."""
        return self.told[0] if self.told else self.ground.reason

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origins of the review, without duplicates."""
        return tuple([reason.origin for reason in self.reasons]) or ("policy",)


class Approved(WithNotes, frozen=True, kw_only=True):
    """An explicit, valid and timely approval of exactly this escalation."""

    notes: ClassVar[frozenset[str]] = frozenset({"details"})

    by: Decider = HUMAN
    reasoning: str = ""
    remember: Candidate | int | None = None
    """One of the escalation's candidates, or its index; None: approved once, nothing remembered."""
    question: EscalationId | None = None
    """The escalation that was answered, where a call joined an earlier question."""
    note: str = ""
    """The reviewer's message to the agent."""
    details: tuple[tuple[str, Json], ...] = ()
    """Additional record fields, such as the engine's findings."""
    revocable: bool = False
    """The approval holds only if the call can be undone."""
    changed: Mapping[str, Json] | None = None
    """The arguments that the person changed: the approval is of the call with these in it."""


class Declined(WithNotes, frozen=True, kw_only=True):
    """A refusal, an invalid answer, or no answer in time."""

    notes: ClassVar[frozenset[str]] = frozenset({"details"})

    by: Decider = HUMAN
    kind: Literal["denied", "expired", "invalid", "withdrawn", "limit"] = "denied"
    """`invalid`: the answer could not be accepted. `withdrawn`: the agent cancelled the call.
    `limit`: nobody was asked, because too many questions of this session are open."""
    reason: str = ""
    """The reason why an answer was invalid, for the record and the operator."""
    note: str = ""
    question: EscalationId | None = None
    """See `Approved.question`."""
    details: tuple[tuple[str, Json], ...] = ()
    """See `Approved.details`."""


class Unreachable(WithNotes, frozen=True, kw_only=True):
    """No reviewer could be asked: the call is refused at once."""

    notes: ClassVar[frozenset[str]] = frozenset({"details"})

    details: tuple[tuple[str, Json], ...] = ()
    """Additional record fields: the opinion of a reviewer that passed the question on."""


class Held(Struct, frozen=True):
    """A call returned to the agent while its escalation stays open. The agent may repeat it."""

    id: EscalationId


class AlreadyUsed(Struct, frozen=True):
    """The approval was used by an identical call that had joined the same question."""


class Edited(Struct, frozen=True):
    """A person changed arguments of the call: the changed call has to be judged."""

    question: EscalationId


class Superseded(Struct, frozen=True):
    """Another policy came into force while the call waited: it has to be judged again."""


Ruling: TypeAlias = Approved | Declined | Unreachable
"""The end of asking about an escalation."""


# --- question


MAX_TEXT: Final = 20_000
"""The limit of characters for all arguments together."""

MAX_DEPTH: Final = 64
"""The nesting depth that is shown. Python's own limit is a few hundred."""

_NARROWEST: Final = 20
_GOES_ON: Final = "      : "

_BLANK: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x2800, 0x2800),  # Braille blank
        (0x3164, 0x3164),  # Hangul filler
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
        (0x13441, 0x13442),  # Egyptian blanks
        (0x16FE4, 0x16FE4),  # Khitan filler
        (0x1D159, 0x1D159),  # musical null notehead
        (0xE0100, 0xE01EF),  # variation selectors, where text can be hidden
    )
    for code in range(first, last + 1)
)
"""Characters that are invisible although their category is letter or mark."""


_PLAIN: Final = frozenset("\n\r\t\N{NO-BREAK SPACE}\N{VARIATION SELECTOR-16}\N{ZERO WIDTH JOINER}")
"""Characters that ordinary texts hold; the last two are parts of emoji."""


def is_hidden(character: str) -> bool:
    """Return whether a character of a text of several lines is invisible or misleading."""
    return character not in _PLAIN and is_invisible(character)


def is_invisible(character: str) -> bool:
    """Return whether a character is invisible, or changes how its neighbours are displayed."""
    return not character.isprintable() or character in _BLANK


def visible(text: str) -> str:
    """Return the text with every invisible or misleading character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    # Replace per distinct character: texts are long and use few different characters.
    hidden = [found for found in set(text) if is_invisible(found)]
    return text.translate({ord(found): _escape(found) for found in hidden}) if hidden else text


def cut(text: str, limit: int) -> str:
    """Return the text with all characters visible; the middle of a long one is cut."""
    left_out = len(text) - limit
    if left_out <= 0:
        return visible(text)
    head = limit // 2
    tail = text[len(text) - (limit - head) :]
    return f"{visible(text[:head])} [… {left_out} CHARACTERS ARE NOT SHOWN …] {visible(tail)}"


def fold(line: str, width: int | None, *, at_blanks: bool = False) -> list[str]:
    """Return the parts of a line, each of at most `width` columns, or of 20 if `width` is less.

    There is at least one part, which may be empty. Joined, the parts are the line.

    Args:
        line: of any characters.
        width: in columns. None leaves the line whole.
        at_blanks: break behind the last blank of a part's second half, so that words stay whole.
    """
    if width is None or len(line) * 2 <= width:
        return [line]
    limit = max(width, _NARROWEST)
    parts: list[str] = []
    start = columns = 0
    for place, char in enumerate(line):
        if columns + _columns(char) > limit:
            blank = line.rfind(" ", (start + place) // 2, place) if at_blanks else -1
            end = place if blank < 0 else blank + 1
            parts.append(line[start:end])
            start, columns = end, _columns(line[end:place])
        columns += _columns(char)
    return [*parts, line[start:]]


def _columns(text: str) -> int:
    return sum([2 if east_asian_width(char) in "WF" else 1 for char in text])


def folded(line: str, width: int | None) -> list[str]:
    """Fold a line. Parts after the first begin with a mark that no other line has.

    Else a terminal begins a line of its own with any words of the agent.
    """
    first, *_ = fold(line, width)
    rest = line[len(first) :]
    parts = fold(rest, None if width is None else width - len(_GOES_ON)) if rest else []
    return [first, *[f"{_GOES_ON}{part}" for part in parts]]


def as_json(value: Json, depth: int = MAX_DEPTH) -> str:
    """Return a value as JSON on one line with visible characters, down to a maximum depth."""
    if depth == 0:
        return "[NESTED TOO DEEPLY TO BE SHOWN]"
    match value:
        case None | bool():
            return _WORDS[value]
        case str():
            return '"' + visible(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        case list():
            return f"[{', '.join([as_json(item, depth - 1) for item in value])}]"
        case dict():
            members = [
                f"{as_json(name)}: {as_json(item, depth - 1)}" for name, item in value.items()
            ]
            return "{" + ", ".join(members) + "}"
        case _:
            return repr(value)


def question(escalation: Escalation, *, limit: int = MAX_TEXT) -> tuple[str, ...]:
    """Return the question, its reasons, the arguments and what would be remembered, one line each.

    Args:
        escalation: the question.
        limit: characters for all arguments together. What is longer is cut in its middle, and the
            line says so.
    """
    ground = escalation.ground
    told = [visible(text) for text in escalation.told]
    by_rule = f"{visible(ground.reason)} (rule {visible(ground.rule)})"
    lines = [
        *told[:1],
        f"May the agent use {visible(escalation.server)}/{visible(escalation.tool)}?",
        *[f"It also does this: {text}" for text in told[1:]],
        f"Why you are asked: {by_rule}",
        *[f"{visible(name)}: {visible(text)}" for name, text in escalation.context],
        *_arguments(escalation.arguments, limit),
        *[
            f'"Remember{place}" means: {visible(found.description)}'
            for place, found in zip(places(escalation), escalation.candidates, strict=True)
        ],
    ]
    return tuple(lines)


def places(escalation: Escalation) -> tuple[str, ...]:
    """Return the choices of "remember" for each candidate: an empty suffix first, then numbers."""
    count = len(escalation.candidates)
    return tuple(["" if place == 1 else f" {place}" for place in range(1, count + 1)])


def _arguments(arguments: Mapping[str, Json], limit: int) -> list[str]:
    if not arguments:
        return ["Arguments: none"]
    shown = [
        f"  {visible(name)} = "
        + (
            f"[MORE THAN {limit} VALUES, NOT SHOWN]"
            if _is_too_much(value, limit)
            else as_json(value)
        )
        for name, value in arguments.items()
    ]
    if sum(map(len, shown)) > limit:
        each = max(limit // len(shown), 1)
        missing = len(shown) - limit
        shown = [_cut(line, each) for line in shown[:limit]]
        if missing > 0:
            shown.append(f"  [… {missing} ARGUMENTS ARE NOT SHOWN …]")
    return ["Arguments, written by the agent:", *shown]


def _cut(line: str, limit: int) -> str:
    left_out = len(line) - limit
    if left_out <= 0:
        return line
    head = (limit + 1) // 2
    tail = line[len(line) - (limit - head) :] if limit > head else ""
    return f"{line[:head]} [… {left_out} CHARACTERS ARE NOT SHOWN …] {tail}"


def _escape(character: str) -> str:
    code = ord(character)
    plain = f"\\u{code:04x}" if code <= _BASIC_PLANE else f"\\U{code:08x}"
    return _NAMED.get(character, plain)


def _is_too_much(value: Json, limit: int) -> bool:
    """Return whether a value holds more elements than a person can read."""
    pending, seen = [value], 0
    while pending and seen <= limit:
        seen += 1
        found = pending.pop()
        if isinstance(found, list):
            pending += found[: limit + 1]
        elif isinstance(found, dict):
            pending += list(found.values())[: limit + 1]
    return seen > limit


_WORDS: Final[Mapping[bool | None, str]] = {None: "null", True: "true", False: "false"}
_NAMED: Final[Mapping[str, str]] = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BASIC_PLANE: Final = 0xFFFF


# --- sentence


SENSITIVE: Final = "which commonly holds secrets"

_LONGEST: Final = 72
_TAIL: Final = 48
"""The characters at the end that a cut keeps: they say whose host it is, and which file."""
_PLAIN_NAME: Final = lazy(r"[^\s\"',;:!?()]+(?::[^\s\"',;:!?()]+)*")
_MOST_NAMED: Final = 2


def short_name(text: str) -> str:
    """Return a name for a sentence: in quotes if it is no plain word, the middle cut."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _TAIL - 1]}…{text[-_TAIL:]}"
    shown = visible(text)
    if _PLAIN_NAME.fullmatch(shown):
        return shown
    blanks = shown.count(" ")
    if blanks > _MOST_BLANKS:
        first, *_, last = shown.split(" ")
        shown = f"{first} … {last}"
    return '"' + shown.replace('"', '\\"') + '"'


_MOST_BLANKS: Final = 3


def short_place(path: str, home: str | None) -> str:
    """Return a path for a sentence, the home directory as `~`."""
    if home and path.startswith(f"{home.rstrip('/')}/"):
        path = f"~{path[len(home.rstrip('/')) :]}"
    return short_name(path)


def short_host(host: str) -> str:
    """Return a host for a sentence, marked if it may look like another one."""
    marked = "" if shown_host(host) == host else " (may imitate another host)"
    return short_name(host) + marked


def and_more(names: Sequence[str]) -> str:
    """Return a few names, and how many others there are."""
    if len(names) <= _MOST_NAMED:
        return " and ".join(names)
    return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"


class MadeCommit(Struct, frozen=True, kw_only=True):
    """A commit on the current branch."""

    id: str
    parent: str
    text: str
    """Its message."""
    paths: tuple[str, ...]
    """The files that differ from its parent's. Absolute."""
    new: tuple[str, ...]
    """Those among them that the parent does not have."""


class Unpublished(Struct, frozen=True, kw_only=True):
    """The state of the workspace's own repository, as git's objects have it."""

    head: str
    staged: tuple[str, ...] = ()
    """The files of the index that differ from the last commit. Absolute."""
    new: tuple[str, ...] = ()
    """Those among them that the last commit does not have."""
    commits: tuple[MadeCommit, ...] | None = ()
    """The commits of the current branch that nobody is known to have asked for, oldest first. None:
    they are too many, or there is a merge."""


UNCHANGED = Unpublished(head="")
"""Nothing is staged, and each commit was there or is asked for."""
