"""Whether a command only reads. Pure: no I/O, no clock, no log.

All of its parts must: every sub-command, every redirection, every assignment, every program in a
wrapper. What is not known to only read asks.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, assert_never

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.command import (
    Assignment,
    ParsedCommand,
    Redirection,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.shell.programs.programs import RULES
from ironcurtain_proxy.shell.programs.wrappers import MAY_INSTALL
from ironcurtain_proxy.shell.rules import (
    Acts,
    Checked,
    Commands,
    Reads,
    Refusal,
    Rule,
    Verbs,
    Wraps,
    check_reads,
    check_verbs,
    skip_options,
)
from ironcurtain_proxy.shell.secrets import names_a_secret

CommandEffect: TypeAlias = Literal["safe", "ask"]
"""`safe`: it only reads, and runs nothing but programs known to only read."""

MAX_WRAPPERS: Final = 12
"""Of wrappers in wrappers: `sudo env nice ls` has three."""

TRUSTED_DIRECTORIES: Final = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})
"""Where a program's path may point. Elsewhere a name says nothing."""

_HARMLESS: Final = re.compile(
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE"
    r"|COLORTERM|AWS_DEFAULT_REGION|AWS_REGION|CI|DEBUG|VERBOSE|POSIXLY_CORRECT"
)
"""Variables that a command may be given. Others can make it run programs (`PATH`, `LD_PRELOAD`,
`GIT_PAGER`, `NODE_OPTIONS`, …)."""

_LOCAL: Final = re.compile(
    r"(?!path$|fpath$|cdpath$|manpath$|.*proxy$|prompt$|argv$|status$)[a-z]\w*"
)
"""Variables that the shell itself may be given. Some lower-case ones mean something to zsh."""

_ESCAPES: Final[frozenset[Capability]] = frozenset({"net.egress"})
_EXEC: Final[frozenset[Capability]] = frozenset({"proc.exec"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandVerdict:
    """What a command amounts to."""

    effect: CommandEffect
    capabilities: frozenset[Capability]
    """What it is known to do. `proc.exec` is always in it, and stands for all that a program that
    is not known may do."""
    reason: str
    """Why it asks, or that it only reads. Names programs, never arguments."""
    programs: tuple[str, ...]
    """The programs, without directories, in the order found; those in wrappers, too."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One finding: of a program, a redirection or an assignment."""

    capabilities: frozenset[Capability]
    refusal: str | None = None
    program: str | None = None


def judge_command(parsed: ParsedCommand) -> CommandVerdict:
    """Safe if every part is. What is not understood, and what runs nothing at all, asks."""
    parts = [part for command in parsed.commands for part in _simple(command, MAX_WRAPPERS)]
    refusals = [part.refusal for part in parts if part.refusal is not None]
    if parsed.unreadable is not None:
        refusals.insert(0, f"it cannot be understood: {parsed.unreadable}")
    elif not parts:
        refusals.append("it runs nothing")
    capabilities = _EXEC.union(*(part.capabilities for part in parts))
    return CommandVerdict(
        effect="ask" if refusals else "safe",
        capabilities=capabilities,
        reason=refusals[0] if refusals else "all its parts only read",
        programs=tuple(part.program for part in parts if part.program is not None),
    )


def any_program(parsed: ParsedCommand, names: frozenset[str]) -> bool:
    """Whether one of these programs would run, in any part of a command. For denials.

    It errs to yes: in a wrapper that is not understood, and in a text that is not, every word
    counts. A program that only a variable names is not found.
    """
    if any(word in names for word in parsed.every_loose_word()):
        return True
    return any(_named(word, names) for one in inner_commands(parsed) for word in one.words[:1])


def _named(word: Word, names: frozenset[str]) -> bool:
    return word.text is not None and word.text.rsplit("/", 1)[-1] in names


def _all_inner(command: SimpleCommand, depth: int) -> Iterator[SimpleCommand]:
    """The command, and what it wraps."""
    yield command
    found = _rule_of(command)
    if depth == 0 or found is None or not isinstance(found[0], Wraps):
        return
    unwrapped = found[0].unwrap(found[1])
    if unwrapped.refused is not None and not unwrapped.commands:
        yield from (SimpleCommand(words=(word,)) for word in command.words[1:])
    inner = (*unwrapped.commands, *(c for text in unwrapped.texts for c in text.every_command()))
    for one in inner:
        yield from _all_inner(one, depth - 1)


def inner_commands(parsed: ParsedCommand) -> Iterator[SimpleCommand]:
    """All commands, and what they wrap."""
    for command in parsed.every_command():
        yield from _all_inner(command, MAX_WRAPPERS)


def is_transparent(command: SimpleCommand) -> bool:
    """Whether a command is a wrapper that adds nothing, or little, to what it runs."""
    found = _rule_of(command)
    if found is None or not isinstance(found[0], Wraps):
        return False
    unwrapped = found[0].unwrap(found[1])
    return unwrapped.refused in {None, MAY_INSTALL}


def program_name(word: Word) -> str | None:
    """The name of a program, without a trusted directory; None if it is not known."""
    if word.text is None:
        return None
    directory, slash, name = word.text.rpartition("/")
    if slash and directory not in TRUSTED_DIRECTORIES:
        return None
    return name or None


def _rule_of(command: SimpleCommand) -> tuple[Rule | Refusal, Sequence[Word]] | None:
    name = program_name(command.words[0]) if command.words else None
    rule = None if name is None else RULES.get(name)
    return None if rule is None else resolve(rule, command.words[1:])


def _simple(command: SimpleCommand, depth: int) -> Iterator[_Part]:
    for redirection in command.redirections:
        yield _redirection(redirection)
    for assignment in command.assignments:
        yield _assignment(assignment, alone=not command.words)
    if command.words:
        yield from _program(command, depth)


def _program(command: SimpleCommand, depth: int) -> Iterator[_Part]:
    first = command.words[0]
    shown = None if first.text is None else first.text.rsplit("/", 1)[-1]
    found = _rule_of(command)
    if found is None:
        reason = f"{shown} is not known to only read" if shown else "a program is not known"
        yield _Part(_EXEC, reason, shown)
        return
    rule, arguments = found
    if isinstance(rule, Wraps):
        yield from _wrapped(shown or "", rule, arguments, depth)
        return
    if isinstance(rule, Refusal):
        yield _Part(rule.capabilities, f"{shown}: {rule.reason}", shown)
        return
    capabilities, refusal = _judge(rule, arguments)
    if refusal is None and "fs.read" in capabilities and names_a_secret(arguments):
        refusal = Refusal("it reads what commonly holds secrets", frozenset({"secrets.access"}))
    if refusal is None:
        yield _Part(capabilities, None, shown)
    else:
        yield _Part(capabilities | refusal.capabilities, f"{shown}: {refusal.reason}", shown)


def _wrapped(shown: str, rule: Wraps, arguments: Sequence[Word], depth: int) -> Iterator[_Part]:
    if depth == 0:
        yield _Part(_EXEC, "wrappers are nested too deeply", shown)
        return
    unwrapped = rule.unwrap(arguments)
    refusal = None if unwrapped.refused is None else f"{shown}: {unwrapped.refused}"
    if refusal is None and not (unwrapped.commands or unwrapped.texts or unwrapped.reads):
        refusal = f"{shown}: what it would run is not known"
    yield _Part(_EXEC, refusal, shown)
    for inner in unwrapped.commands:
        yield from _simple(inner, depth - 1)
    for text in unwrapped.texts:
        if text.unreadable is not None:
            yield _Part(_EXEC, f"{shown}: what it would run cannot be understood")
        elif not text.commands:
            yield _Part(_EXEC, f"{shown}: it would run nothing")
        for inner in text.commands:
            yield from _simple(inner, depth - 1)


def resolve(rule: Rule, words: Sequence[Word]) -> tuple[Rule | Refusal, Sequence[Word]]:
    """The rule of the sub-command, and the words after its name."""
    while isinstance(rule, Commands):
        if _asks_for_help(words) and not (words and words[0].text in rule.runs):
            return _SHOWS_HELP, ()
        dashed = bool(words) and words[0].text in rule.commands  # `brew --prefix`
        rest = words if dashed else skip_options(words, rule.flags, rule.values)
        if rest is None:
            reason = "an option before the sub-command is not known"
            return Refusal(reason, rule.capabilities), words
        found = _sub_command(rule, rest)
        if found is None:
            reason = "the sub-command is not known to only read"
            return Refusal(reason, rule.capabilities), rest
        rule, words = found
    return rule, words


_SHOWS_HELP: Final = Reads(capabilities=frozenset())


def _sub_command(rule: Commands, rest: Sequence[Word]) -> tuple[Rule, Sequence[Word]] | None:
    for length in (3, 2, 1):
        texts = [word.text for word in rest[:length]]
        found = rule.commands.get(" ".join(text or "\0" for text in texts))
        if len(texts) == length and found is not None:
            return found, rest[length:]
    return (rule.alone, rest) if not rest and rule.alone is not None else None


def _judge(rule: Rule, words: Sequence[Word]) -> tuple[frozenset[Capability], Refusal | None]:
    match rule:
        case Reads():
            reason = check_reads(rule, words)
            return rule.capabilities, None if reason is None else Refusal(reason)
        case Verbs():
            if _asks_for_help(words):
                return frozenset(), None
            return rule.capabilities, check_verbs(rule, words)
        case Checked():
            reason = rule.check(words)
            return rule.capabilities, None if reason is None else Refusal(reason)
        case Acts():
            return rule.capabilities, Refusal(rule.reason)
        case Wraps() | Commands():  # resolved and unwrapped before
            return _EXEC, Refusal("it runs another program")
        case _:
            assert_never(rule)


_HELP: Final = frozenset({"--help", "-h", "help", "--version", "-V"})
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


def _asks_for_help(words: Sequence[Word]) -> bool:
    """`git --version`, `aws s3 cp --help`: at the end, after names of sub-commands only."""
    *path, last = words or (Word(None),)
    if last.text not in _HELP or len(path) > 2:  # noqa: PLR2004
        return False
    if last.text in {"-h", "help", "-V"} and path:
        return last.text == "-h" and len(path) == 1 and _plain(path)
    return last.text == "--help" and _plain(path) if path else True


def _plain(words: Iterable[Word]) -> bool:
    return all(word.text is not None and _PLAIN.fullmatch(word.text) for word in words)


def _redirection(redirection: Redirection) -> _Part:
    target = redirection.target
    match redirection.operator:
        case "<<" | "<<<" | "<&-" | ">&-":
            return _Part(frozenset())
        case "<" | "<&":
            return _input(target)
        case operator:
            if target.text == "/dev/null" or (operator == ">&" and _is_descriptor(target)):
                return _Part(frozenset())
            if target.prefix.startswith(_CONNECTIONS):
                return _Part(_ESCAPES, "a redirection opens a connection")
            return _Part(frozenset({"fs.write"}), "output is written to a file")


_CONNECTIONS: Final = ("/dev/tcp/", "/dev/udp/")


def _input(target: Word) -> _Part:
    if target.prefix.startswith(_CONNECTIONS):
        return _Part(_ESCAPES, "a redirection opens a connection")
    if names_a_secret([target]):
        capabilities = frozenset({"fs.read", "secrets.access"})
        return _Part(capabilities, "it reads what commonly holds secrets")
    refusal = "input comes from a file that is not known" if target.text is None else None
    return _Part(frozenset({"fs.read"}), refusal)


def _is_descriptor(target: Word) -> bool:
    return target.text is not None and target.text.isascii() and target.text.isdigit()


def _assignment(assignment: Assignment, *, alone: bool) -> _Part:
    if alone and _LOCAL.fullmatch(assignment.name):
        return _Part(frozenset())
    if not alone and _HARMLESS.fullmatch(assignment.name):
        return _Part(frozenset())
    return _Part(frozenset(), "a variable is set that may change what programs do")
