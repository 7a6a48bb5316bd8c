"""Commands that reach beyond the sandbox, and their targets there.

Commands that reach something outside the sandbox.

The tables decide which commands are asked about before they run. Safety does not depend on them: a
command that they miss runs without a network, fails, and is asked about when the call is repeated.

Commands that work outside the workspace.

They write or delete where no snapshot holds it, change the machine itself, or read files of the
user's that a file tool would ask about.

The hosts are shown to the person who is asked, and an approval opens these alone. So they are read
by the grammar of the program: a header, a message or a body that has an address in it opens
nothing, and what may lead a request elsewhere is an unknown host, which nothing opens. A host that
is missing here is asked about when the sandbox stops the command on its way there.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from msgspec import Struct

from ironcurtain_proxy.model.request import CommandPlace, Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.family_table import hoisted, task_of
from ironcurtain_proxy.shell.grammar import (
    EndOfOptions,
    GivenOption,
    Grammar,
    Operand,
    Option,
    UnknownOption,
    grammar_of,
    read_items,
    with_values,
)
from ironcurtain_proxy.shell.places import may_write, path_of
from ironcurtain_proxy.shell.programs import entries, expanded, paths, phrases, word_lists, word_set

_LEAVES: Final = word_lists("leaves")
_ALWAYS: Final = _LEAVES["always"]
"""Programs for which every call is asked about: most of what they do leaves the machine, or asks a
service on it that runs outside the sandbox."""

_PRIVILEGED: Final = _LEAVES["privileged"]
"""Programs that change the machine itself."""

_SUB_COMMANDS: Final = word_lists("leaving-sub-commands")
_OFFLINE: Final = word_lists("offline")
_INSIDE: Final = frozenset(phrases("never-leaving"))
"""Sub-commands of such programs that need nothing outside."""
BARE_INSTALLERS: Final = frozenset({"yarn", "bundle", "composer", "pnpm"})
"""Package tools that install when they are called without a sub-command."""

_ASKS: Final = frozenset({"-v", "-V", "-h", "--version", "--help"})

_PAIRS: Final = frozenset(phrases("leaving-pairs"))


_CONNECTIONS: Final = ("/dev/tcp/", "/dev/udp/")
"""Paths that bash opens as a network connection."""


def why_outward(command: SimpleCommand) -> str | None:
    """Return why a command leaves the sandbox, or None if no reason is known."""
    if any(one.target.prefix.startswith(_CONNECTIONS) for one in command.redirections):
        return "a redirection opens a connection"
    name = name_of(command)
    if name is None:
        return None
    rest = command.words[1:]
    texts = [word.text or "" for word in rest]
    if texts in _SHOW_THEMSELVES:
        return None
    if name in {"python", "python3"} and texts[:2] == ["-m", "pip"]:
        name, rest = "pip", rest[2:]
    path = sub_commands(rest)
    if any(one in _INSIDE for one in ((name, *path[:1]), (name, *path[:2]), (name, *texts))):
        return None
    copies = name == "rsync" and any(":" in text for text in texts)
    if copies or name in _ALWAYS or _fetches_to_run(name, texts):
        return f"{name} reaches something outside"
    return _why_sub_command(name, path, rest)


_SHOW_THEMSELVES: Final = (["--version"], ["--help"], ["-v"], ["-V"], ["version"])
"""The only argument with which every one of these programs prints its own version or help."""
_STARTERS: Final = frozenset({("npx",), ("bunx",), ("npm", "exec"), ("npm", "x"), ("bun", "x")})
_STAY: Final = frozenset({"--no-install", "--no", "--bun", "--"})
_INSTALLED: Final = re.compile(r"(?:@[\w.-]+/)?[\w.][\w.-]*")
"""The name of a package alone: with a version, an address or a path it may be another one."""


def _fetches_to_run(name: str, texts: Sequence[str]) -> bool:
    """Return whether a launcher is told to fetch a package, and not just to start a program.

    `npx tsc` starts what the project has installed. Where it is not installed, the sandbox has no
    network to fetch it: the call fails, and is asked about when it is repeated.
    """
    width = _launcher_width(name, texts)
    rest = [text for text in texts[max(width - 1, 0) :] if text not in _STAY]
    return width > 0 and not all(map(_INSTALLED.fullmatch, rest[:1]))


def _launcher_width(name: str, texts: Sequence[str]) -> int:
    return next((len(one) for one in _STARTERS if (name, *texts)[: len(one)] == one), 0)


def may_fetch(command: SimpleCommand) -> bool:
    """Return whether a program fetches what it is to start, if the project has not installed it."""
    texts = [word.text or "" for word in command.words[1:3]]
    return _launcher_width(name_of(command) or "", texts) > 0


def _why_sub_command(name: str, path: Sequence[str], rest: Sequence[Word]) -> str | None:
    known = _SUB_COMMANDS.get(name)
    if known is None:
        return None
    if not path and name in BARE_INSTALLERS and not _ASKS.intersection(word.text for word in rest):
        return f"{name} installs packages"
    if path and path[0] in known:
        is_outward = path[0] not in word_set("installs") or not _stays(name, rest)
        return f"{name} {path[0]} reaches another machine" if is_outward else None
    named = any((word.text or "").startswith("--remote=") for word in rest)
    if tuple(path[:2]) in _PAIRS or named:
        return f"{name} {' '.join(path[:2])} reaches another machine"
    return None


def _stays(name: str, rest: Sequence[Word]) -> bool:
    """Return whether a program that installs is told to use what is on this machine alone."""
    texts = [word.text for word in rest]
    known = any(option in texts for option in _OFFLINE.get(name, ()))
    return known and all(text is not None and ":" not in text for text in texts)


def why_privileged(command: SimpleCommand) -> str | None:
    """Return why a command changes the machine itself, or None if no reason is known."""
    name = name_of(command)
    if name not in _PRIVILEGED or (name, *[word.text for word in command.words[1:]]) in _LISTS:
        return None
    return f"{name} changes the machine"


_LISTS: Final = frozenset(phrases("privileged-lists"))
"""Such programs with the words with which they only list what there is."""


def name_of(command: SimpleCommand) -> str | None:
    """Return the name of the program, without its directory."""
    text = command.words[0].text if command.words else None
    return None if text is None else text.rpartition("/")[2] or None


def sub_commands(rest: Sequence[Word]) -> list[str]:
    """Return the words from the first operand up to the next option."""
    found: list[str] = []
    at = 0
    while at < len(rest):
        text = rest[at].text
        at += 1
        if text is None:
            break
        if text.startswith(("-", "+")):
            if found:
                break
            at += text in word_set("with-value")
            continue
        found.append(text)
    return found


# --- beyond


_REMOVERS: Final = words("rm mv shred rmdir unlink trash")
_PRUNES: Final = words("gc prune repack")
_WHOLE: Final = "removes a whole repository"


def why_beyond(command: SimpleCommand, place: CommandPlace) -> str | None:
    """Return the reason why a command works outside the workspace, or None if nothing says so."""
    privileged = why_privileged(command)
    if privileged is not None:
        return privileged
    if any(_leaves(one, place) for one in command.redirections):
        return "output is written to a file outside the workspace"
    name = name_of(command)
    if name == "git" and _PRUNES & set(sub_commands(command.words[1:])[:1]):
        return "git removes objects for good"
    if name in word_set("writers"):
        reasons = (_why_not_here(name, word, place) for word in operands_of(command))
        found = next((reason for reason in reasons if reason is not None), None)
        if found is not None:
            return found
    return None


def words_beyond(command: SimpleCommand, place: CommandPlace) -> Iterator[Word]:
    """Yield the words of a command that name what it changes outside the workspace."""
    yield from (one.target for one in command.redirections if _leaves(one, place))
    name = name_of(command)
    if name in word_set("writers"):
        found = ((word, _why_not_here(name, word, place)) for word in operands_of(command))
        yield from (word for word, why in found if why is not None and _WHOLE not in why)


def words_written(command: SimpleCommand) -> Iterator[Word]:
    """Yield the words of a command that name what it writes, or removes."""
    yield from (one.target for one in command.redirections if one.operator in _WRITE)
    name, options = name_of(command), [word.prefix for word in command.words[1:]]
    in_place = name == "sed" and any(one.startswith(("-i", "--in-place")) for one in options)
    if in_place or name in word_set("writers"):
        yield from operands_of(command)


def deletes_repository(command: SimpleCommand, place: CommandPlace) -> bool:
    """Return whether a command removes the workspace, or the data of a repository in it."""
    name = name_of(command)
    found = (_why_not_here(name, one, place) for one in operands_of(command) if name in _REMOVERS)
    return any(why is not None and _WHOLE in why for why in found)


def is_symbolic_link(command: SimpleCommand) -> bool:
    """Return whether a command makes a link, whose target is neither written nor read."""
    if name_of(command) != "ln":
        return False
    options = [word.text or "" for word in command.words[1:] if word.prefix.startswith("-")]
    known = all(_LINK.fullmatch(one) for one in options)
    return known and any(_SYMBOLIC.fullmatch(one) for one in options)


_WRITE: Final = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})
_LINK: Final = re.compile(
    r"-[sfnrvibT]*t?|--(?:symbolic|force|no-dereference|relative|verbose|interactive|backup"
    r"|no-target-directory|target-directory=.*)"
)
_SYMBOLIC: Final = re.compile(r"-[a-zT]*s[a-zT]*|--symbolic")


def paths_beyond(command: SimpleCommand, place: CommandPlace) -> Iterator[str]:
    """Yield the paths that a command names and changes where its sandbox does not let it."""
    if why_privileged(command) is not None:
        return
    for word in words_beyond(command, place):
        path = path_of(word, place)
        if path is not None and not may_write(path, place):
            yield path


def operands_of(command: SimpleCommand) -> list[Word]:
    """Return the words of a program that writes which say where it does so."""
    operands = [word for word in command.words[1:] if not word.prefix.startswith("-")]
    if is_symbolic_link(command):
        return _made_links(command, operands)
    is_copy = name_of(command) == "cp" and not any(
        re.match(r"-\w*t|--t", word.prefix) for word in command.words[1:]
    )
    return operands[-1:] if is_copy else operands


def _made_links(command: SimpleCommand, operands: list[Word]) -> list[Word]:
    """Return the words that say where a symbolic link is made; its targets are no such places."""
    given = command.words[1:]
    for at, word in enumerate(given):
        if word.prefix.startswith("--target-directory="):
            return [Word(None if word.text is None else word.text.partition("=")[2])]
        if re.fullmatch(r"-[a-zT]*t", word.prefix):
            return [*given[at + 1 : at + 2]]
    # `ln -s TARGET` makes a link of the target's name in the working directory.
    return operands[1:][-1:]


def _leaves(one: Redirection, place: CommandPlace) -> bool:
    if one.operator not in _WRITE:
        return False
    path = path_of(one.target, place)
    return path is not None and not may_write(path, place)


def _why_not_here(name: str | None, word: Word, place: CommandPlace) -> str | None:
    path = path_of(word, place)
    if path is None:
        # Of `/tmp/x/*.log` the directory is known. What else it leads to, the sandbox holds.
        around = path_of(Word(word.prefix.rpartition("/")[0] or "/"), place)
        absolute = word.prefix.startswith(("/", "~"))
        outside = absolute and (around is None or not may_write(around, place))
        return f"{name} works outside the workspace" if outside else None
    if not may_write(path, place):
        return f"{name} works outside the workspace"
    if name in _REMOVERS and (path == place.workspace or path.endswith("/.git")):
        return f"{name} {_WHOLE}"
    return None


# --- targets


UNKNOWN_HOST: Final = "an unknown host"
"""The target of a command that an option or a variable may lead elsewhere."""

_HOST: Final = r"(?P<host>\[[0-9a-f:.]+\]|[\w.-]+)(?::\d+)?(?P<end>[/?#]|$)"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}://", re.IGNORECASE)
_URL: Final = re.compile(rf"{_SCHEME.pattern}(?:[^/?#\s\\]*@)?{_HOST}", re.IGNORECASE)
_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+)(?P<end>:)(?!//)")
_BARE: Final = re.compile(rf"(?:[^/?#@\s\\:]*@)?{_HOST}", re.IGNORECASE)
_DIRECT: Final = re.compile(r"[\w.\[\],-]+\s*@\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
"""The start of a requirement of Python that names an address: `package @ https://…`."""
_NAMED: Final = entries("account-options")
"""The options that name a cluster, an account or a project, with the word for it."""
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
HARMLESS_VARIABLES: Final = word_set("harmless-variables")
_LEAD_NOWHERE: Final = HARMLESS_VARIABLES | word_set("variables-lead-nowhere")
"""Variables that do not change where a program connects."""


def may_lead_elsewhere(command: SimpleCommand) -> bool:
    """Return whether a command that reaches out may reach a host that it does not name plainly."""
    return UNKNOWN_HOST in targets_of(command)


class _Reach(Struct, frozen=True):
    """The options of a program by what they say about where it connects."""

    options: Mapping[str, Option]
    operands: str = ""
    """The kind of the operands. If it is empty, they are read as those of an unknown program."""
    is_lenient: bool = True
    """Whether an option that is not stated is harmless unless its name or value says otherwise."""
    width: int = 1
    """The words that name the program and its sub-command."""


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


def targets_of(command: SimpleCommand) -> Iterator[str]:
    """Yield the targets that a command names which reaches out, in their order."""
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
        named = [one for one in with_values(given[1:], _NAMED.keys()) if one[1] in _NAMED]
        known = [(option, value.prefix) for _, option, value, _ in named if value is not None]
        yield from [f"{_NAMED[option]} {text}" for option, text in known if text]


def _without_settings(given: Sequence[Word]) -> tuple[list[Word], bool]:
    """Return a git command without its own options, and whether one may lead it elsewhere."""
    behind, odd = 0, False
    for word, _, value, at in with_values(given[1:], frozenset({"-c", "-C"})):
        if not word.prefix.startswith("-"):
            break
        behind = at
        if word.text == "-c":
            odd = odd or value is None or not _SETS.match(value.prefix)
        odd = odd or word.text not in {"-c", "-C", "--no-pager", "-P", "--no-optional-locks"}
    return [given[0], *given[1 + behind :]], odd


def _by_grammar(reach: _Reach, texts: tuple[str, ...], given: Sequence[Word]) -> Iterator[str]:
    task = task_of(texts)
    options = reach.options if task is None else {**task.options, **reach.options}
    operands: list[Word] = []
    items = read_items(Grammar(options), given)
    for at, item in items:
        match item:
            case EndOfOptions():
                operands += given[at:]
            case Operand(word):
                operands.append(word)
            case GivenOption(option=Option(kind="h"), value=Word() as value):
                yield _host(value, is_bare=True) or UNKNOWN_HOST
            case GivenOption():
                yield from (UNKNOWN_HOST,) if item.option.kind in {"u", "h"} else ()
            case UnknownOption():
                following = given[at : at + 1] if "=" not in item.word.prefix else ()
                nearby = "".join(one.prefix for one in following if not item.attached)
                yield from _of_unknown(reach, item, nearby)
                # Where it is not known whether the next word is its value, that word opens nothing.
                is_named = not reach.is_lenient or _SCHEME.search(nearby)
                if is_named and nearby[:1] not in {"", "-"}:
                    next(items)
            case _:
                assert_never(item)
    yield from _of_operands(reach, operands)


def _of_unknown(reach: _Reach, item: UnknownOption, nearby: str) -> Iterator[str]:
    is_address = item.option is not None and item.option.kind in {"u", "h"}
    texts = (_LEADS_ELSEWHERE.search(item.name), _SCHEME.search(item.attached or nearby))
    if not reach.is_lenient or is_address or any(texts):
        yield UNKNOWN_HOST


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
