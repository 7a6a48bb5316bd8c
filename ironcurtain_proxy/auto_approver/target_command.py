"""The actions of a shell command, if its user's message can have asked for each of its parts.

Each part is a row of the table below, or only reads. A part that is neither, or an option that a
row does not name, sends the whole command to a person.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from msgspec import convert
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.target_call import (
    Action,
    GitCall,
    InstallCall,
    NotUnderstood,
    PullRequestCall,
    SpelledCall,
    SpelledVerb,
    is_off,
    may_carry,
)
from ironcurtain_proxy.auto_approver.vocabulary import TABLE
from ironcurtain_proxy.model.request import (
    CommandPlace,
    ParsedCommand,
    Redirection,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.model.values import Arguments
from ironcurtain_proxy.shell.effects import Part, effect_of
from ironcurtain_proxy.shell.grammar import Grammar, ParsedOptions, grammar_of, read_options
from ironcurtain_proxy.shell.places import is_inside, is_protected_name, names_a_secret, path_of

_FORCES: Final = re.compile(
    r"(?<![\w-])--(?:force|amend|no-verify|hard|delete|mirror|prune|exec|config)\b"
)
"""Options that destroy, rewrite or run. In a commit message they only stand there; but what is
message and what is option was told apart by this program, and a person sees it for certain."""


def actions_of_command(
    command: ParsedCommand, place: CommandPlace, arguments: Arguments
) -> tuple[Action, ...] | NotUnderstood:
    """Read the operations of a command that need a request.

    Args:
        command: the command.
        place: where it runs.
        arguments: those of the call, which hold its text.
    """
    reason = why_not_read(command, place, arguments)
    if reason is not None:
        return NotUnderstood(reason)
    actions: list[Action] = []
    staged: tuple[str, ...] = ()
    for part in effect_of(command, place).parts:
        if part.command not in command.commands:
            return NotUnderstood("a part of the command runs another program")
        found = _row(part)
        if isinstance(found, NotUnderstood):
            return found
        if isinstance(found, tuple):
            staged += found
            continue
        actions.append(_with_facts(found, staged, arguments))
        staged = () if isinstance(found, GitCall) and found.operation == "commit" else staged
    if not actions or staged:
        return NotUnderstood("the command has no operation that a message can ask for")
    return tuple(actions)


def why_not_read(command: ParsedCommand, place: CommandPlace, arguments: Arguments) -> str | None:
    """Return the reason why a command cannot have been asked for, whatever its parts are."""
    if command.unreadable is not None:
        return "the command cannot be read"
    if any(_FORCES.search(text) for text in arguments.values() if isinstance(text, str)):
        return "the command has an option that forces or deletes"
    if any(
        isinstance(one, bool | list | dict) and not is_off(name, one)
        for name, one in arguments.items()
    ):
        return "the call has a switch that may change what the command does"
    if place.workspace is None or place.directory != place.workspace:
        return "the command is not known to run in the workspace"
    return None


def _with_facts(found: Action, staged: tuple[str, ...], arguments: Arguments) -> Action:
    """Return an action with what other parts of the command say of it."""
    if isinstance(found, PullRequestCall):
        return replace(found, carries=may_carry(arguments))
    if isinstance(found, GitCall) and found.operation == "commit":
        return replace(found, staged=staged + found.staged)
    return found


def _row(part: Part) -> Action | NotUnderstood | tuple[str, ...]:
    """Return the action of a part; of one that needs no request, what it stages."""
    reason = _why_not_plain(part.command)
    if reason is not None:
        return NotUnderstood(reason)
    words = part.command.words
    name = _program(words)
    row = _ROWS.get(name)
    if row is None:
        reason = _why_not_reads(part)
        return () if reason is None else NotUnderstood(reason)
    known, read = row
    reading = read_options(known, words[len(name) :])
    if isinstance(reading, str):
        return NotUnderstood(f"{' '.join(name)}: an option may change what it does")
    return read(reading, part.place)


def _why_not_plain(command: SimpleCommand) -> str | None:
    if any(not _is_harmless(one) for one in command.redirections):
        return "the command writes its output to a file, or reads one"
    if command.assignments or not command.words:
        return "the command sets a variable"
    if any(word.variables for word in command.words):
        return "the command uses a variable"
    return None


def _why_not_reads(part: Part) -> str | None:
    """Return the reason why a part needs a request, or None for one that shows nothing new.

    A part that reads is not harmless beside an operation that was asked for: `git push; git log -p`
    shows what nobody asked to see. What passes on its own input, and the state of the repository
    in one line each, may stand there.
    """
    if part.effect != "reads":
        return "a message cannot ask for a part of the command"
    texts = tuple([word.text for word in part.command.words])
    passes = texts[0] in _FILTERS and _has_no_operand(part.command.words[1:])
    # After a change of directory each part is judged in its own.
    is_status = (texts in _STATUS or texts[0] == "cd") and part.command.is_certain
    return None if passes or is_status else "a part reads what the message does not name"


_STATUS: Final = frozenset(
    {("git", "status"), ("git", "status", "--short"), ("git", "status", "-s"), ("pwd",), ("true",)}
)
_FILTERS: Final = frozenset({"cat", "head", "tail", "wc"})
_NUMBER: Final = re.compile(r"-[a-z]?\d*|\d+")


def _has_no_operand(words: Sequence[Word]) -> bool:
    return all(word.text is not None and _NUMBER.fullmatch(word.text) for word in words)


def _is_harmless(redirection: Redirection) -> bool:
    operator, target = redirection.operator, redirection.target
    if operator == "<<":
        return not target.variables
    return (operator == ">&" and target.text in {"1", "2"}) or (
        operator in {">", "&>"} and target.text == "/dev/null"
    )


def _program(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the program with as many words behind it as say what it does."""
    texts = tuple([word.text or "" for word in words[:3]])
    return next((texts[:length] for length in (3, 2) if texts[:length] in _ROWS), texts[:1])


# --- git -----------------------------------------------------------------------------------------


def _own_repository(place: CommandPlace) -> NotUnderstood | None:
    if place.directory == place.workspace and place.has_repository:
        return None
    return NotUnderstood("the command is not known to work in the workspace's own repository")


def _stage(reading: ParsedOptions, place: CommandPlace) -> NotUnderstood | tuple[str, ...]:
    if names_a_secret(reading.operands):
        return NotUnderstood("the command names what commonly holds secrets")
    if reading.has("-A", "--all") or not (reading.operands or reading.has("-u", "--update")):
        # It takes every file that nobody tracks, secrets and results of a build among them.
        return NotUnderstood("git add: it may stage files that nobody tracks")
    staged = []
    for word in reading.operands:
        path = path_of(word, place)
        if not _PLAIN_PATHSPEC.fullmatch(word.text or ""):
            # Git reads `*.py` and `:!a.py` by itself: the second is every file but one.
            return NotUnderstood("git add: a pattern may stage files that nobody tracks")
        if path is None or not is_inside(path, place) or is_protected_name(path):
            return NotUnderstood("the command names a file that is not one of the workspace")
        if not reading.has("-u", "--update") and not FILE_NAME.search(path):
            return NotUnderstood("git add: a directory may hold files that nobody tracks")
        staged.append(path)
    return _own_repository(place) or tuple(staged or [str(place.workspace)])


_PLAIN_PATHSPEC: Final = re.compile(r"[^:*?\[\\][^*?\[\\]*")
FILE_NAME: Final = re.compile(
    r"[^/]\.(?!(?:app|bak|d|git|next|nuxt|old)$)[a-z0-9]{1,8}$"
    r"|(?:^|/)(?:\.(?:git|docker)ignore|\.gitattributes|\.editorconfig|Makefile|Dockerfile|LICENSE)$"
)
"""A name that a file has and a directory hardly ever: `conf.d` and `App.Tests` are directories."""


def _commit(reading: ParsedOptions, place: CommandPlace) -> Action | NotUnderstood:
    if reading.operands:
        return NotUnderstood("git commit: an operand may change what it does")
    said = reading.values_of("-m", "--message")
    if not said:
        return NotUnderstood("the call has no message to commit with")
    # A substitution in it is a part of the command, and judged as one.
    text = said[0].text if len(said) == 1 else None
    everything = (str(place.workspace),) if reading.has("-a", "--all") else ()
    call = GitCall(
        operation="commit", text=text or "a text that the command makes", staged=everything
    )
    return _own_repository(place) or call


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*", re.ASCII)
_REMOTE_AND_BRANCH: Final = 2


def _remote(
    operation: Literal["push", "pull", "fetch"], reading: ParsedOptions, place: CommandPlace
) -> Action | NotUnderstood:
    names = [word.text or "" for word in reading.operands]
    remote, branch = [*names, "", ""][:2]
    # A remote with a `/` could be a path, where whoever put a repository there waits.
    is_plain = len(names) <= _REMOTE_AND_BRANCH and all(_NAME.fullmatch(name) for name in names)
    if not is_plain or "/" in remote:
        return NotUnderstood("the command names something other than a remote and a branch")
    if place.push_to is None or place.branch is None:
        return NotUnderstood("the upstream of the current branch is not known")
    return _own_repository(place) or GitCall(
        operation=operation,
        remote=remote or None,
        branch=place.branch if branch == "HEAD" else branch or None,
        current=place.branch,
        upstream=place.push_to,
    )


# --- pull requests, packages, addresses ----------------------------------------------------------


def _create(reading: ParsedOptions, place: CommandPlace) -> Action | NotUnderstood:
    heads = {word.text for word in reading.values_of("--head", "-H")}
    if reading.operands or not heads <= {place.branch}:
        return NotUnderstood("gh pr create: an operand may change what it does")
    said = (*reading.values_of("--title", "-t"), *reading.values_of("--body", "-b"))
    texts = tuple(
        [word.text or "a text that the command makes" for word in said if word.text != ""]
    )
    if not texts and not reading.has("--fill", "-f", "--fill-first", "--fill-verbose"):
        return NotUnderstood("gh pr create: it would ask for a title")
    base = next((word.text or "" for word in reading.values_of("--base", "-B")), None)
    return _own_repository(place) or PullRequestCall(
        draft=reading.has("--draft", "-d"),
        is_ready_mark=False,
        texts=texts,
        base=base,
        pushed=GitCall(operation="push", current=place.branch, upstream=place.push_to),
    )


def _ready(reading: ParsedOptions, place: CommandPlace) -> Action | NotUnderstood:
    if reading.operands:
        return NotUnderstood("gh pr ready: an operand may change what it does")
    return _own_repository(place) or PullRequestCall(draft=False, is_ready_mark=True)


_PACKAGE: Final = re.compile(r"@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?:(?:@|==)[\w.^~-]+)?", re.ASCII)


def _install(
    manager: str, reading: ParsedOptions, place: CommandPlace, *, named: bool | None = None
) -> Action | NotUnderstood:
    """Read an installation. `named`: of packages alone, or of the lock file alone."""
    if named is not None and named != bool(reading.operands):
        return NotUnderstood("the command installs from another file, or what is in none")
    names = tuple([word.text or "" for word in reading.operands])
    if place.directory != place.workspace:
        return NotUnderstood("the command is not known to run in the workspace")
    # `user/name` is a repository for npm, not a package of a registry.
    if not all(_PACKAGE.fullmatch(one) and ("/" not in one or one[0] == "@") for one in names):
        return NotUnderstood("the command installs what is not just a name")
    return InstallCall(manager=manager, packages=names)


_ON_REMOTES: Final[tuple[Literal["push", "pull", "fetch"], ...]] = ("push", "pull", "fetch")
_NAMED: Final = ("pnpm add", "yarn add", "pip install", "pip3 install", "uv add", "poetry add",
                 "cargo add")  # fmt: skip
"""Of the packages that are named, and of these alone."""
_LOCKED: Final = ("npm ci", "pnpm install", "yarn install", "uv sync", "poetry install")
"""Of what the project's lock file names."""


_VALUE: Final = re.compile(r"[\w#][^\s{}\[\]]*", re.ASCII)


def _spelled(
    verb: SpelledVerb, reading: ParsedOptions, place: CommandPlace
) -> Action | NotUnderstood:
    """Read a command of which each operand has to be named, and the value of an option quoted."""
    values = tuple([word.text or "" for word in reading.operands])
    said = [word for _, word in reading.options if word is not None and word.text != ""]
    if len(said) > 1 or not all(map(_VALUE.fullmatch, values)):
        return NotUnderstood("the command names what a message cannot name")
    text = (said[0].text or "a text that the command makes") if said else None
    outside = None if verb == "get" else _own_repository(place)
    return outside or SpelledCall(verb=verb, values=values, text=text)


_VERBS: Final = convert(TABLE["verbs"], dict[str, SpelledVerb])
_Read = Callable[[ParsedOptions, CommandPlace], "Action | NotUnderstood | tuple[str, ...]"]
_READERS: Final[Mapping[str, _Read]] = {
    "git add": _stage,
    "git commit": _commit,
    **{f"git {one}": partial(_remote, one) for one in _ON_REMOTES},
    "gh pr create": _create,
    "gh pr ready": _ready,
    "npm install": partial(_install, "npm"),
    "npm i": partial(_install, "npm"),
    **{
        name: partial(_install, name.split()[0].removesuffix("3"), named=name in _NAMED)
        for name in (*_NAMED, *_LOCKED)
    },
    **{name: partial(_spelled, verb) for name, verb in _VERBS.items()},
}
_ROWS: Final[Mapping[tuple[str, ...], tuple[Grammar, _Read]]] = {
    tuple(name.split()): (grammar_of(options), _READERS[name])
    for name, options in TABLE["commands"].items()
}
"""Each program and sub-command, with the options that do not change its effect, and the effect."""
