"""Programs that run other programs, and the commands that they would run.

In doubt, more commands are found: behind an unknown option, each word may begin a command.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.request import Assignment, ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.model.values import words as names
from ironcurtain_proxy.shell.grammar import behind_options, grammar_of
from ironcurtain_proxy.shell.programs import entries, paths, word_set

MAX_WRAPPERS: Final = 12
"""The most levels of wrappers in wrappers: `sudo env nice ls` has three."""

_ANYTHING: Final = Word(None, "*", splits=True)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)


class Unwrapped(Struct, frozen=True, kw_only=True):
    """The commands that a wrapper would run."""

    commands: tuple[SimpleCommand, ...] = ()
    texts: tuple[ParsedCommand, ...] = ()
    """The texts for a shell."""
    understood: bool = True
    """Whether the wrapper is understood, or False if a command may begin at any word."""

    def every(self) -> tuple[SimpleCommand, ...]:
        """Return all commands that the wrapper would run: directly, and in texts for a shell."""
        return (*self.commands, *(one for text in self.texts for one in text.every_command()))


_NOT_UNDERSTOOD: Final = Unwrapped(understood=False)
_Unwrap: TypeAlias = Callable[[Sequence[Word]], Unwrapped]


def _command(found: Sequence[Word]) -> Unwrapped:
    return Unwrapped(commands=(SimpleCommand(words=tuple(found)),) if found else ())


def _prefixed(name: str, given: Sequence[Word]) -> Unwrapped:
    """Return the command behind the options and operands of a wrapper of the table."""
    text = entries("wrappers")[name]
    operands = text.count("(1)")
    rest = behind_options(grammar_of(text), given)
    if rest is None or any(word.splits for word in rest[:operands]):
        return _NOT_UNDERSTOOD
    return _command(rest[operands:])


_ENV: Final = grammar_of(
    "- -i --ignore-environment -0 --null -v --debug -u=m --unset=m -C=m --chdir=m"
)
_LOOKUP: Final = grammar_of("-p")
_XARGS: Final = grammar_of(
    "-0 --null -t --verbose -r --no-run-if-empty -x --exit --replace[m] -I=m -n=m --max-args=m -P=m"
    " --max-procs=m -L=m --max-lines=m -d=m --delimiter=m -E=m -a=m --arg-file=m -s=m --max-chars=m"
    " -S=m -R=m"
)


def _env(given: Sequence[Word]) -> Unwrapped:
    """Return the command of `env -i NAME=value … command`."""
    rest = behind_options(_ENV, given)
    if rest is None:
        return _NOT_UNDERSTOOD
    assignments: list[Assignment] = []
    for word in rest:
        found = _ASSIGNMENT.match(word.prefix)
        if found is None:
            break
        assignments.append(Assignment(found[1], word))
    inner = SimpleCommand(words=tuple(rest[len(assignments) :]), assignments=tuple(assignments))
    return Unwrapped(commands=(inner,) if inner.words else ())


def _lookup(given: Sequence[Word]) -> Unwrapped:
    """Return the command of `command ls`; none for `command -v ls`, which prints its place."""
    if given and given[0].text in {"-v", "-V"}:
        return Unwrapped()
    rest = behind_options(_LOOKUP, given)
    return _NOT_UNDERSTOOD if rest is None else _command(rest)


def _xargs(given: Sequence[Word]) -> Unwrapped:
    """Return the command of `xargs`, which gets words from the input.

    At its end, or at the mark.
    """
    rest = behind_options(_XARGS, given)
    if rest is None:
        return _NOT_UNDERSTOOD
    own = [word.prefix for word in given[: len(given) - len(rest)]]
    if any(text.startswith(("-I", "--replace")) for text in own):
        return _command([_filled(word) for word in rest])
    return _command([*rest, _ANYTHING] if rest else ())


def _filled(word: Word) -> Word:
    """Return the word with each mark replaced by an unknown text, in a text that runs as well."""
    plain = word.text is not None and re.fullmatch(r"[\w./-]+", word.text)
    inner = word.command
    if inner is not None:
        inner = replace(inner, commands=tuple(map(_with_marks, inner.commands)))
    return word if plain else Word(None, "*", splits=True, command=inner)


def _with_marks(command: SimpleCommand) -> SimpleCommand:
    files = [replace(one, target=_filled(one.target)) for one in command.redirections]
    return replace(command, words=tuple(map(_filled, command.words)), redirections=tuple(files))


_FIND_RUNS: Final = names("-exec -execdir -ok -okdir")


def _find(given: Sequence[Word]) -> Unwrapped:
    """Return the commands of `find`: `-exec command {} ;` may occur several times."""
    found: list[SimpleCommand] = []
    at = 0
    while at < len(given):
        at += 1
        if given[at - 1].text in _FIND_RUNS:
            end = next((n for n in range(at, len(given)) if given[n].text in {";", "+"}), None)
            found.append(SimpleCommand(words=tuple(map(_filled, given[at:end]))))
            at = len(given) if end is None else end + 1
    return Unwrapped(commands=tuple(one for one in found if one.words))


def _fd(given: Sequence[Word]) -> Unwrapped:
    """Return the commands of `fd … -x command`.

    One may begin behind any option like `-x` or `--exec`.
    """
    runs = [n for n, word in enumerate(given) if _FD_RUNS.match(word.prefix)]
    inner = [tuple(map(_filled, given[at + 1 :])) for at in runs]
    texts = [word.prefix.partition("=")[2] for word in given if word.prefix.startswith("--exec")]
    found = [*(SimpleCommand(words=one) for one in inner if one)]
    found += [SimpleCommand(words=(Word(text),)) for text in texts if text]
    return Unwrapped(commands=tuple(found))


_FD_RUNS: Final = re.compile(r"-[A-Za-z]*[xX]|--e[xec-]*")
_SHELL_LETTERS: Final = frozenset("cilexuvnf")


def _shell(given: Sequence[Word]) -> Unwrapped:
    """Return the text of `sh -c text`, or every word that may be it if an option is unknown."""
    at, has_text = 0, False
    while at < len(given):
        text = given[at].text
        if text is None or not text.startswith(("-", "+")):
            break
        at += 1
        if text in {"--login", "--norc", "--noprofile", "--posix"}:
            continue
        letters = set(text[1:])
        has_text = has_text or "c" in letters
        if not letters <= _SHELL_LETTERS | {"o"} or text.startswith("--"):
            return _texts(given)
        at += "o" in letters
    if not has_text or at >= len(given) or given[at].command is None:
        return _texts(given)
    return _texts(given[at : at + 1])


def _texts(given: Sequence[Word]) -> Unwrapped:
    """Return the words, each as a text for a shell."""
    return Unwrapped(texts=tuple(word.command for word in given if word.command is not None))


def _anywhere(given: Sequence[Word]) -> Unwrapped:
    """Return a wrapper with unknown arguments: a command may begin at any word."""
    return replace(_texts(given), understood=False)


def _eval(given: Sequence[Word]) -> Unwrapped:
    """Return the text of `eval`; several words are joined to one text that is not parsed."""
    return _texts(given) if len(given) == 1 else _anywhere(given)


_SHELLS: Final = ("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh")

WRAPPERS: Final[Mapping[str, _Unwrap]] = {
    **{name: functools.partial(_prefixed, name) for name in entries("wrappers")},
    **dict.fromkeys(_SHELLS, _shell),
    **dict.fromkeys(word_set("opaque-wrappers"), _anywhere),
    **dict.fromkeys(("find", "gfind"), _find),
    **dict.fromkeys(("fd", "fdfind"), _fd),
    **dict.fromkeys(("eval", "watch"), _eval),
    "env": _env,
    "trap": lambda given: _texts(given[:1]),
    "command": _lookup,
    "xargs": _xargs,
    "fzf": _texts,
}
"""Programs that run the command in their arguments."""


def unwrapped(command: SimpleCommand) -> Unwrapped | None:
    """Return the commands that a wrapper would run, or None if the command is no wrapper."""
    text = command.words[0].text if command.words else None
    unwrap = None if text is None else WRAPPERS.get(text.rpartition("/")[2])
    return None if unwrap is None else unwrap(command.words[1:])


def inner_commands(parsed: ParsedCommand) -> Iterator[SimpleCommand]:
    """Yield all commands, and all commands that they may run."""
    commands = tuple(parsed.every_command())
    runs_a_shell = any(map(_names_a_shell, commands))
    for command in commands:
        yield from _every_inner(command, MAX_WRAPPERS)
        if not command.words and runs_a_shell:
            # The input of a group or a loop, in which the shell stands.
            yield from _pieces(_given(command))


def _every_inner(command: SimpleCommand, depth: int) -> Iterator[SimpleCommand]:
    yield command
    found = unwrapped(command)
    if found is not None and depth > 0:
        for one in found.every():
            yield from _every_inner(one, depth - 1)
    loose = [*_given(command)] if _names_a_shell(command) else []
    if (found is not None and (not found.understood or depth == 0)) or _carries(command):
        loose += command.words[1:]
    yield from _pieces(loose)


def _pieces(loose: Iterable[Word]) -> Iterator[SimpleCommand]:
    """Yield each word of texts that are not parsed as the program of a command."""
    for word in loose:
        pieces = _BETWEEN.split(word.prefix)
        yield from (SimpleCommand(words=(Word(piece),)) for piece in pieces if piece)


def _names_a_shell(command: SimpleCommand) -> bool:
    """Return whether a command may start a shell that reads its input: `sudo bash <<E`."""
    return any((word.text or "").rpartition("/")[2] in _SHELLS for word in command.words)


def _given(command: SimpleCommand) -> Iterator[Word]:
    """Yield the texts of here-documents and here-strings."""
    return (one.target for one in command.redirections if one.operator in {"<<", "<<<"})


_BETWEEN: Final = re.compile(r"[\s;|&(){}'\"`$<>=]+")
"""The characters around the name of a program in a text that was not parsed."""


def _carries(command: SimpleCommand) -> bool:
    text = command.words[0].text if command.words else None
    known = paths("carriers").get(((text or "").rpartition("/")[2],), "").split()
    return any(word.text in known for word in command.words[1:])


def any_program(parsed: ParsedCommand, programs: frozenset[str]) -> bool:
    """Return whether one of these programs would run, in any part of a command. For denials.

    It errs to yes: in a wrapper that is not understood, and in a text that is not, every word
    counts. A program that only a variable names is not found.
    """
    if any(word in programs for word in parsed.every_loose_word()):
        return True
    first = (word.text for one in inner_commands(parsed) for word in one.words[:1])
    return any(text is not None and text.rsplit("/", 1)[-1] in programs for text in first)
