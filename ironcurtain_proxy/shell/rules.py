"""What a program may be given so that it only reads. Pure: no I/O, no clock, no log.

Rules are data. An option, an argument or a sub-command that a rule does not speak for is refused,
or the rule says which few are: then all others only read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word

Options: TypeAlias = frozenset[str]
"""`-x` is also meant in `-axb`; `--long` is also meant in `--long=value`. `-x:` takes a value."""

FILES: Final[frozenset[Capability]] = frozenset({"fs.read"})
NETWORK: Final[frozenset[Capability]] = frozenset({"net.egress"})
NOTHING: Final[frozenset[Capability]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """A program, or a sub-command, that only reads if it is called like this."""

    refused: Options = frozenset()
    """Options that do more. They are also refused as a part of a cluster, and abbreviated."""
    allowed: Options | None = None
    """The only options that may be given; None: any that is not refused."""
    needs: Options = frozenset()
    """One of these must be given; without them the program does more."""
    needs_for_operands: Options = frozenset()
    """One of these must be given if there are operands: `git branch x` makes one."""
    operands: int | None = None
    """How many operands there may be; None: any number."""
    denied_words: frozenset[str] = frozenset()
    """Words that may not be operands: they are sub-commands that do more."""
    refused_operands: "re.Pattern[str] | None" = None
    """Operands that lead elsewhere; a program that reaches the network may name no host anyway."""
    single_dash: bool = False
    """`-name` is one option, not a cluster of letters."""
    abbreviated: bool = True
    """`--out` may mean `--output`. Programs in Go do not do that."""
    capabilities: frozenset[Capability] = FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """A program with sub-commands."""

    commands: "Mapping[str, Rule]"
    """By name: `log`, `container ls`. The longest name counts."""
    flags: Options = frozenset()
    """Options before the sub-command, without a value."""
    values: Options = frozenset()
    """The same, with a value in the next word or after `=`."""
    alone: "Rule | None" = None
    """Without a sub-command."""
    runs: frozenset[str] = frozenset()
    """Sub-commands that hand `--help` on to another program."""
    capabilities: frozenset[Capability] = FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """A program whose sub-commands end in a verb: `az vm list`, `gcloud compute disks list`."""

    verbs: "re.Pattern[str]"
    """The verbs that only read."""
    groups: "re.Pattern[str]"
    """What may stand before the verb."""
    refused_paths: "re.Pattern[str]"
    """Found in the whole path, with its verb: what is secret, or does more."""
    secret_paths: "re.Pattern[str]"
    """Found in the whole path: what shows secrets."""
    flags: Options = frozenset()
    values: Options = frozenset()
    refused: Options = frozenset()
    operands: int | None = None
    """Words between the verb and the first option."""
    capabilities: frozenset[Capability] = NETWORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A program with a language of its own: a function says why it does more, or None."""

    check: Callable[[Sequence[Word]], str | None]
    capabilities: frozenset[Capability] = FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """What a wrapper would run."""

    commands: tuple[SimpleCommand, ...] = ()
    texts: tuple[ParsedCommand, ...] = ()
    """Texts that it hands to a shell."""
    refused: str | None = None
    """Why the wrapper itself is not safe, whatever it runs."""
    reads: bool = False
    """It may run nothing, and only reads then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wraps:
    """A program that runs another."""

    unwrap: Callable[[Sequence[Word]], Unwrapped]
    """Gets the words after the program's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """A program that does more than read, however it is called."""

    capabilities: frozenset[Capability]
    reason: str


Rule: TypeAlias = Reads | Commands | Verbs | Checked | Wraps | Acts


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is not safe."""

    reason: str
    capabilities: frozenset[Capability] = field(default=NOTHING)


def options(text: str) -> Options:
    """Options, or words, from a text with blanks between them."""
    return frozenset(text.split())


def commands(text: str, rule: Rule) -> dict[str, Rule]:
    """One rule for many sub-commands. A line is a path and what may end it: `image ls|inspect`."""
    table: dict[str, Rule] = {}
    for line in text.strip().splitlines():
        *path, last = line.split()
        table |= {" ".join([*path, name]): rule for name in last.split("|")}
    return table


def check_reads(rule: Reads, words: Sequence[Word]) -> str | None:
    """Why the words are more than the rule allows, or None."""
    given: set[str] = set()
    operands: list[Word] = []
    for word in words:
        if word.text is None:
            hidden = _hidden(rule, word)
            if hidden is not None:
                return hidden
            operands.append(word)
            continue
        if len(word.text) < 2 or word.text[0] != "-" or word.text == "--":  # noqa: PLR2004
            operands.append(word)
            continue
        names = _names(rule, word.text)
        bad = next((name for name in names if not _may(rule, name)), None)
        if bad is not None:
            return f"with {bad} it does more than read"
        given.update(names)
    return _operands(rule, given, operands)


def _operands(rule: Reads, given: set[str], operands: Sequence[Word]) -> str | None:
    if rule.needs and not given & rule.needs:
        return "without an option that says so it does more than read"
    denied = next((word.text for word in operands if word.text in rule.denied_words), None)
    if denied is not None:
        return f"{denied} does more than read"
    if any(_leads_elsewhere(rule, word.text or "") for word in operands):
        return "an argument leads elsewhere"
    real = [word for word in operands if word.text != "--"]
    if rule.operands is not None and len(real) > rule.operands:
        return "with so many arguments it does more than read"
    if real and rule.needs_for_operands and not given & rule.needs_for_operands:
        return "with an argument it does more than read"
    return None


_HOST: Final = re.compile(
    r".*(?:https?|oci|git|ssh|ftp)://.*|git@.*|[\w-]+(?:\.[\w-]+)+(?::\d+)?/.*"
)


def _leads_elsewhere(rule: Reads, text: str) -> bool:
    if "net.egress" in rule.capabilities and _HOST.fullmatch(text):
        return True
    return rule.refused_operands is not None and bool(rule.refused_operands.fullmatch(text))


def _hidden(rule: Reads, word: Word) -> str | None:
    """Whether a word that is not known could be an option, or more operands."""
    anything = (
        not rule.refused
        and rule.allowed is None
        and not rule.denied_words
        and rule.operands is None
        and not rule.needs_for_operands
        and not rule.refused_operands
    )
    if anything:
        return None
    if not word.splits and word.prefix and word.prefix[0] != "-":
        return None
    name, equals, _ = word.prefix.partition("=")
    if not word.splits and equals and name.startswith("--") and _may(rule, name):
        return None
    return "an argument that is not known could be an option that does more than read"


def _names(rule: Reads, text: str) -> list[str]:
    """The options that a word is: several if it is a cluster."""
    name = text.partition("=")[0]
    if name.startswith("--") or rule.single_dash:
        return [name]
    names: list[str] = []
    for letter in text[1:]:
        names.append(f"-{letter}")
        if rule.allowed is not None and f"-{letter}:" in rule.allowed:
            names[-1] += ":"
            break  # the rest is its value
    # Some write long options with one dash; as a whole they may be named in a rule.
    return [name] if rule.allowed and name in rule.allowed else [*names, name]


def _may(rule: Reads, name: str) -> bool:
    if name in rule.refused or _abbreviates(rule, name):
        return False
    if rule.allowed is None or name in rule.allowed or f"{name}:" in rule.allowed:
        return True
    # The whole word, beside its letters: they decide.
    cluster = not name.startswith("--") and not rule.single_dash
    return cluster and (len(name) > 2 or name[1:].isdigit())  # noqa: PLR2004


def _abbreviates(rule: Reads, name: str) -> bool:
    if not rule.abbreviated or not name.startswith("--"):
        return False
    return any(option.startswith(name) for option in rule.refused)


def check_verbs(rule: Verbs, words: Sequence[Word]) -> Refusal | None:
    """Why a command is not one of the verbs that read, or None."""
    rest = skip_options(words, rule.flags, rule.values)
    if rest is None:
        return Refusal("an option before the sub-command is not known")
    bare: list[str] = []
    for word in rest:
        if word.text is None or word.text.startswith("-"):
            break
        bare.append(word.text)
    at = next((n for n, text in enumerate(bare) if rule.verbs.fullmatch(text)), None)
    if at is None:
        return Refusal("the sub-command is not known to only read")
    path = " ".join(bare[: at + 1])
    if rule.secret_paths.search(path):
        return Refusal("it shows secrets", frozenset({"secrets.access"}))
    if rule.refused_paths.search(path) or not all(map(rule.groups.fullmatch, bare[:at])):
        return Refusal("the sub-command is not known to only read")
    if rule.operands is not None and len(bare) - at - 1 > rule.operands:
        return Refusal("with so many arguments it may do more than read")
    reads = Reads(refused=rule.refused, abbreviated=False)
    reason = check_reads(reads, rest[at + 1 :])
    return None if reason is None else Refusal(reason)


def skip_options(words: Sequence[Word], flags: Options, values: Options) -> Sequence[Word] | None:
    """The words from the first that is no option; None if an option is not one of these.

    `--` ends the options if it is one of the flags.
    """
    at = 0
    while at < len(words):
        if words[at].text is not None and not words[at].prefix.startswith(("-", "+")):
            return words[at:]
        if words[at].text == "--" and "--" in flags:
            return words[at + 1 :]
        width = _option_width(words[at], words[at + 1 : at + 2], flags, values)
        if width == 0:
            return None
        at += width
    return ()


def _option_width(word: Word, following: Sequence[Word], flags: Options, values: Options) -> int:
    """How many words an option and its value take; 0 if it is not one of these."""
    text, prefix = word.text, word.prefix
    name, equals, _ = prefix.partition("=")
    if equals and not word.splits and name.startswith("--") and name in values:
        return 1
    if text is None:
        return 0
    if text in flags:
        return 1
    if text in values:
        return 2 if following and not following[0].splits else 0
    if text.startswith("--") or len(text) < 3:  # noqa: PLR2004
        return 0
    cluster = all(f"-{letter}" in flags for letter in text[1:])
    return 1 if text[:2] in values or cluster else 0
