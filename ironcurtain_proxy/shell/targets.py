"""Targets of a command outside the machine: hosts, remotes and branches, clusters, registries.

The hosts are shown to the person who is asked, and an approval opens these alone. So they are read
by the grammar of the program: a header, a message or a body that has an address in it opens
nothing, and what may lead a request elsewhere is an unknown host, which nothing opens. A host that
is missing here is asked about when the sandbox stops the command on its way there.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ironcurtain_proxy.model.request import SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.family_table import hoisted, task_of
from ironcurtain_proxy.shell.grammar import Option, grammar_of
from ironcurtain_proxy.shell.outward import name_of, sub_commands
from ironcurtain_proxy.shell.programs import expanded, paths

if TYPE_CHECKING:
    from ironcurtain_proxy.shell.effects import CommandEffect

UNKNOWN_HOST: Final = "an unknown host"
"""The target of a command that an option or a variable may lead elsewhere."""

_HOST: Final = r"(?P<host>\[[0-9a-f:.]+\]|[\w.-]+)(?::\d+)?(?P<end>[/?#]|$)"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_URL: Final = re.compile(rf"{_SCHEME.pattern}(?:[^/?#\s\\]*@)?{_HOST}", re.IGNORECASE)
_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+)(?P<end>:)(?!//)")
_BARE: Final = re.compile(rf"(?:[^/?#@\s\\:]*@)?{_HOST}", re.IGNORECASE)
_DIRECT: Final = re.compile(r"[\w.\[\],-]+\s*@\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
"""The start of a requirement of Python that names an address: `package @ https://…`."""
_NAMED: Final = {
    "--context": "context", "--kube-context": "context", "-n": "namespace",
    "--namespace": "namespace", "--profile": "profile", "--project": "project",
    "--repo": "repository", "-R": "repository", "--region": "region", "--app": "app",
}  # fmt: skip
_CLUSTERS: Final = words("kubectl helm oc aws gcloud az gh glab docker flyctl fly")
_LEADS_ELSEWHERE: Final = re.compile(
    r"prox|regist|index-|endpoint|insteadof|hostname|base-?url|userconfig", re.IGNORECASE
)
"""Names of options that say where a request goes."""
_SETS: Final = re.compile(
    r"(?:user|author|committer|color|advice|commit|tag|init|pull|push|merge|rebase|gc|log|diff"
    r"|status|branch|format|i18n|column|pager|core\.(?:quotepath|autocrlf|eol|abbrev|pager))\b",
    re.IGNORECASE,
)
"""Settings of git that change neither where it connects nor what it runs there."""
HARMLESS_VARIABLES: Final = frozenset(
    {"CI", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TERM", "LANG", "LC_ALL", "TZ", "DEBUG",
     "NODE_ENV", "RUST_BACKTRACE", "RUST_LOG", "PYTHONUNBUFFERED", "COLUMNS", "VERBOSE",
     "GIT_PAGER_IN_USE", "GIT_TERMINAL_PROMPT", "GH_PROMPT_DISABLED", "HUSKY"}
)  # fmt: skip
_LEAD_NOWHERE: Final = HARMLESS_VARIABLES | {
    "DOCKER_BUILDKIT", "BUILDKIT_PROGRESS", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
    "GH_TOKEN", "GITHUB_TOKEN", "NODE_NO_WARNINGS", "PYTHONDONTWRITEBYTECODE", "PGPASSWORD",
}  # fmt: skip
"""Variables that do not change where a program connects."""


def targets_of(effect: "CommandEffect") -> tuple[str, ...]:
    """Return the targets that the outward parts of a command name, in their order."""
    found: dict[str, None] = {}
    for part in effect.parts:
        if part.effect == "outward":
            found.update(dict.fromkeys(_targets(part.command)))
    return tuple(found)


def may_lead_elsewhere(command: SimpleCommand) -> bool:
    """Return whether a command that reaches out may reach a host that it does not name plainly."""
    return UNKNOWN_HOST in _targets(command)


class _Reach(Struct, frozen=True):
    """The options of a program by what they say about where it connects."""

    options: Mapping[str, Option]
    operands: str = ""
    """The kind of the operands; empty: as those of a program that is not in the table."""
    is_lenient: bool = True
    """Whether an option that is not stated is harmless unless its name or value says otherwise."""
    width: int = 1
    """The words that name the program and its sub-command."""

    def option(self, name: str, texts: tuple[str, ...]) -> Option | None:
        """Return an option as the table states it, else as the one of families does."""
        found = self.options.get(name)
        task = task_of(texts) if found is None else None
        return found if task is None else task.options.get(name)


_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?", re.ASCII)
_MODULE: Final = 2
"""The place of a module's name behind `python3 -m`."""
_OPERANDS: Final = re.compile(r"\((urls|hosts|host|copy)\)")
_NOT_STATED: Final = _Reach({})


@functools.cache
def _reach_of(entry: str, width: int) -> _Reach:
    text = expanded(entry)
    kind = _OPERANDS.search(text)
    return _Reach(grammar_of(text).options, kind[1] if kind else "", "(some)" in text, width)


def _targets(command: SimpleCommand) -> Iterator[str]:
    name = name_of(command)
    if name is None:
        return
    given = hoisted((Word(name), *command.words[1:]))
    if _PYTHON.fullmatch(name) and len(given) > _MODULE and given[1].text == "-m":
        # `python3 -m pip` takes the options of pip.
        given = given[_MODULE:]
        name = given[0].text or name
    if any(one.name not in _LEAD_NOWHERE for one in command.assignments):
        yield UNKNOWN_HOST
    if name == "git":
        given, odd = _without_settings(given)
        yield from (UNKNOWN_HOST,) if odd else ()
        path = sub_commands(given[1:])
        if path[:1] in (["push"], ["fetch"], ["pull"]) and "://" not in " ".join(path[1:2]):
            yield f"remote {' '.join(path[1:3]) or 'of the branch'}"
    texts = tuple([word.text or "" for word in given[:4]])
    table = paths("reaches")
    width = 2 if texts[:2] in table else 1
    entry = table.get(texts[:width])
    reach = _NOT_STATED if entry is None else _reach_of(entry, width)
    yield from _by_grammar(reach, texts, given[reach.width :])
    if name in _CLUSTERS:
        yield from _named([word.text or word.prefix for word in given[1:]])


def _without_settings(given: Sequence[Word]) -> tuple[list[Word], bool]:
    """Return a git command without its own options, and whether one may lead it elsewhere."""
    at, odd = 1, False
    while at < len(given) and given[at].prefix.startswith("-"):
        text = given[at].text
        if text == "-c":
            odd = odd or not _SETS.match("".join(w.prefix for w in given[at + 1 : at + 2]))
            at += 2
        elif text == "-C":
            at += 2
        else:
            odd = odd or text not in {"--no-pager", "-P", "--no-optional-locks"}
            at += 1
    return [given[0], *given[at:]], odd


def _by_grammar(reach: _Reach, texts: tuple[str, ...], given: Sequence[Word]) -> Iterator[str]:
    operands: list[Word] = []
    at = 0
    while at < len(given):
        word = given[at]
        at += 1
        if word.prefix == "--":
            operands += given[at:]
            break
        if not word.prefix.startswith("-") or word.text == "-":
            operands.append(word)
            continue
        found, takes_next = _of_option(reach, texts, word, given[at : at + 1])
        yield from found
        at += takes_next
    yield from _of_operands(reach, operands)


def _of_option(
    reach: _Reach, texts: tuple[str, ...], word: Word, following: Sequence[Word]
) -> tuple[tuple[str, ...], bool]:
    """Return the targets of an option, and whether the next word is its value."""
    name, equals, value = word.prefix.partition("=")
    option = reach.option(name, texts)
    if option is None and not name.startswith("--"):
        for at, letter in enumerate(word.prefix[1:], start=2):
            option = reach.option(f"-{letter}", texts)
            if option is None or option.arity != "none":
                name, equals, value = f"-{letter}", word.prefix[at:], word.prefix[at:]
                break
    needs_next = not equals and option is not None and option.arity in {"value", "separate"}
    given = following[0] if needs_next and following else replace(word, text=value)
    if word.text is None and not needs_next:
        given = Word(None, value + "*")
    if option is None:
        nearby = "" if equals else "".join(one.prefix for one in following)
        odd = (
            not reach.is_lenient or _LEADS_ELSEWHERE.search(name) or _SCHEME.search(value or nearby)
        )
        # Where it is not known whether the next word is its value, that word opens nothing.
        is_named = not reach.is_lenient or _SCHEME.search(nearby)
        return (UNKNOWN_HOST,) if odd else (), bool(is_named) and nearby[:1] not in {"", "-"}
    match option.kind:
        case "u":
            return (UNKNOWN_HOST,), needs_next
        case "h":
            return (_host(given, is_bare=True) or UNKNOWN_HOST,), needs_next
        case _:
            return (), needs_next


def _host(word: Word, *, is_bare: bool) -> str | None:
    """Return the host of an address, or that it is not known, or None if the word is no address.

    Args:
        word: an operand or a value.
        is_bare: whether a name without a scheme is an address, too.
    """
    text = word.prefix
    direct = _DIRECT.match(text)
    text = text[direct.end() :] if direct is not None else text
    has_scheme = _SCHEME.search(text) is not None
    if not has_scheme and not is_bare:
        return None
    found = (_URL.search if has_scheme else _BARE.match)(text)
    # What stands behind a host that is not ended yet may be the rest of its name.
    if found is None or (word.text is None and not found["end"]):
        return UNKNOWN_HOST
    return f"host {found['host']}"


def _of_operands(reach: _Reach, operands: Sequence[Word]) -> Iterator[str]:
    if reach.operands == "host":
        operands = operands[:1]
    for word in operands:
        remote = _REMOTE.match(word.prefix) if reach.operands in {"copy", "urls"} else None
        if remote is not None and (reach.operands == "copy" or "@" in word.prefix):
            yield f"host {remote['host']}"
        elif reach.operands in {"host", "hosts"}:
            yield _host(word, is_bare=True) or UNKNOWN_HOST
        elif reach.operands == "urls" and re.match(r"[\w+.-]+::", word.prefix):
            yield UNKNOWN_HOST
        elif _SCHEME.match(word.prefix) or _DIRECT.match(word.prefix):
            yield _host(word, is_bare=False) or UNKNOWN_HOST
        elif word.text is None and not word.prefix and reach.operands:
            yield UNKNOWN_HOST


def _named(texts: list[str]) -> Iterator[str]:
    for at, text in enumerate(texts):
        option, equals, value = text.partition("=")
        if option in _NAMED:
            given = value if equals else "".join(texts[at + 1 : at + 2])
            if given:
                yield f"{_NAMED[option]} {given}"
