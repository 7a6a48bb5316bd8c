"""What the engine and a profile ask of a command: its kind, its branches, its capabilities.

A command has the most dangerous kind of all commands that it would run, in wrappers, too. Where two
kinds are possible, the more dangerous one counts.

The branches that it commits and pushes to are known only where nothing in the command could lead
git elsewhere: another directory or repository, a variable, a wrapper, a remote that the repository
does not have. The engine treats an unknown branch as `main`.

The capabilities err to more: a profile may deny one, so each that a command may need is named. Only
for a command that is shown to read are they exact.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast, get_args

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import Capability
from ironcurtain_proxy.model.request import CommandPlace, ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.effects import CommandEffect, effect_of
from ironcurtain_proxy.shell.family_table import Task, forces, hoisted, task_of
from ironcurtain_proxy.shell.grammar import with_values
from ironcurtain_proxy.shell.outward import may_fetch, name_of, sub_commands, why_outward
from ironcurtain_proxy.shell.places import is_in_git_data, names_a_secret, shows_git_configuration
from ironcurtain_proxy.shell.programs import entries, word_lists, word_set
from ironcurtain_proxy.shell.wrappers import Unwrapped, inner_commands, unwrapped

ShellOperation: TypeAlias = Literal[
    "safe", "test", "git-fetch", "git-pull", "git-commit", "install", "git-push", "other",
    "database", "rm", "deploy", "git-force-push", "mount", "dd",
]  # fmt: skip
"""The kinds, the most dangerous last. `other`: not safe and not known more precisely, or not
understood."""

DANGER: Final[Mapping[ShellOperation, int]] = {
    kind: place for place, kind in enumerate(get_args(ShellOperation))
}
"""The danger of each kind: a higher number is more dangerous."""


def _kinds(section: str) -> dict[str, ShellOperation]:
    return {
        word: cast("ShellOperation", kind)
        for kind, words_of_kind in word_lists(section).items()
        for word in words_of_kind
    }


_PROGRAMS: Final = _kinds("operation-programs")
"""The kind of a program's calls that are not safe."""

_BY_PATTERN: Final = tuple(
    (cast("ShellOperation", kind), re.compile("|".join(text.splitlines()), re.DOTALL))
    for kind, text in entries("operation-patterns").items()
)
"""The kinds by the words of a command, for commands that the table above lacks."""

_GIT_OPERATIONS: Final = _kinds("operation-git")


def operation_of(parsed: ParsedCommand, place: CommandPlace) -> ShellOperation:
    """Return the most dangerous operation in a command, at least `other` if not understood."""
    found = effect_of(parsed, place)
    if found.effect == "reads":
        return "safe"
    reading = {id(part.command) for part in found.parts if part.effect == "reads"}
    kinds = [_operation(one) for one in inner_commands(parsed) if id(one) not in reading]
    kinds += [_PROGRAMS[word] for word in parsed.every_loose_word() if word in _PROGRAMS]
    # Parts that do more for a reason other than their programs: a redirection, a variable, an
    # error.
    worst = _worst(kinds)
    return _worst([worst, "other"]) if worst == "safe" or parsed.unreadable is not None else worst


def _worst(found: Sequence[ShellOperation]) -> ShellOperation:
    return max(found, key=lambda kind: DANGER[kind], default="other")


def _operation(command: SimpleCommand) -> ShellOperation:
    if any(_is_device(one.target.prefix) for one in command.redirections):
        return "dd"
    name = name_of(command)
    if not command.words:
        return "other"
    texts = [word.prefix for word in command.words[1:]]
    if name == "git":
        return _git(texts)
    if name is not None and name.startswith("mkfs"):
        return "dd"
    shown = " ".join([name or "", *texts])
    matched: list[ShellOperation] = [k for k, pattern in _BY_PATTERN if pattern.fullmatch(shown)]
    named = _PROGRAMS.get(name or "")
    if named is not None:
        matched.append(named)
    wraps = name in word_set("plain-wrappers") and unwrapped(command) not in {None, Unwrapped()}
    return _worst(matched) if matched else "safe" if wraps else "other"


def _is_device(target: str) -> bool:
    harmless = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/fd")
    return target.startswith("/dev/") and not target.startswith(harmless)


_MAY_RUN: Final = ("-c", "--config-env", "--exec-path")
"""Options of git itself that may have it run any program: a configuration can name one."""

_OTHER_END: Final = ("--upload-pack", "--receive-pack", "--exec")
"""Options that name a program to run at the remote end, which may be this machine."""

_HELPER: Final = re.compile(r"[\w+.-]+::")
"""The start of an address that a helper program opens: `ext::` runs the rest as a command."""


def _git(texts: Sequence[str]) -> ShellOperation:
    """Return the operation of a git sub-command. A push that can remove commits is a forced one."""
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace"} else 1
    if at >= len(texts):
        return "other"
    operation = _GIT_OPERATIONS.get(texts[at], "other")
    # A word that forces, deletes or is unknown, such as `+branch`.
    forced = (not text or text[0] in "+:" or forces(text) for text in texts[at + 1 :])
    if operation == "git-push" and any(forced):
        return "git-force-push"
    if operation in {"git-fetch", "git-pull", "git-push"} and any(map(_runs, texts[at + 1 :])):
        return "other"
    runs = any(text.startswith(_MAY_RUN) for text in texts[:at])
    return _worst([operation, "other"]) if runs else operation


def _runs(text: str) -> bool:
    """Return whether an argument of git may name a program, or is not known."""
    name = text.partition("=")[0]
    is_option = name.startswith("--") and name != "--"
    return (
        not text
        or (is_option and any(option.startswith(name) for option in _OTHER_END))
        or _HELPER.match(text) is not None
    )


# --- branches


CURRENT: Final = "HEAD"
"""The mark for the current branch of the repository."""

_GIT_PROGRAMS: Final = frozenset({"git", "/usr/bin/git", "/bin/git", "/usr/local/bin/git"})

_HARMLESS: Final = frozenset({"-P", "--no-pager"})
"""Git's own options that leave the repository where it is."""

_PUSH_OPTIONS: Final = word_set("plain-push-options")
"""Options of a push that name nothing, and add no other branch."""

_REMOTE: Final = "origin"
"""The remote that a push may name. An address or a path leads anywhere, and to git any other name
may be a directory, whose hooks it runs."""


def branches_of_command(parsed: ParsedCommand) -> tuple[str, ...] | None:
    """Return the refspecs of all its commits and pushes, in order, or None if they are not known.

    Args:
        parsed: the command.

    Returns:
        `HEAD` for a commit; the refspecs of a push, as they stand there.
    """
    if parsed.unreadable is not None:
        return None
    direct = {id(command) for command in parsed.commands}
    found: list[str] = []
    for command in inner_commands(parsed):
        refspecs = _of_one(command, wrapped=id(command) not in direct)
        if refspecs is None:
            return None
        found += refspecs
    return tuple(dict.fromkeys(found))


def _of_one(command: SimpleCommand, *, wrapped: bool) -> Sequence[str] | None:
    if command.assignments:
        return None
    if not command.words:
        return ()
    name = command.words[0].text
    if name is None or name in word_set("stateful"):
        return None
    if name not in _GIT_PROGRAMS:
        # A git of another directory is another program.
        return None if name.endswith("/git") else ()
    return None if wrapped else _of_git(command.words[1:])


def _of_git(words: Sequence[Word]) -> Sequence[str] | None:
    texts = [word.text for word in words]
    while texts and texts[0] in _HARMLESS:
        del texts[0]
    match texts:
        case ["commit", *_]:
            return (CURRENT,)
        case ["push", *arguments]:
            return _of_push(arguments)
        case [str() as command, *_] if not command.startswith("-"):
            return ()
        case _:
            return None


def _of_push(arguments: Sequence[str | None]) -> Sequence[str] | None:
    """Return the refspecs of a push, or None if not known.

    Without one, git's configuration decides.
    """
    named = [text for text in arguments if text not in _PUSH_OPTIONS]
    if any(text is None or text.startswith("-") for text in named) or named[:1] != [_REMOTE]:
        return None
    return [text for text in named[1:] if text is not None] or None


# --- capabilities


_READS: Final[frozenset[Capability]] = frozenset({"fs.read"})
_RUNS: Final[frozenset[Capability]] = frozenset({"fs.read", "fs.write", "proc.exec"})
_DELETES: Final[Capability] = "fs.delete"
_SECRETS: Final[Capability] = "secrets.access"
_EGRESS: Final[Capability] = "net.egress"

_GIT_DELETERS: Final = words("clean rm gc prune reset checkout restore stash")
_OPTIONS: Final = words("-delete --delete --remove --remove-files --remove-source-files")
_SHOW_SECRETS: Final = words("env printenv export declare typeset set security pass op vault gpg")
_DECLARE: Final = words("export declare typeset")


def needs_of(
    parsed: ParsedCommand, found: CommandEffect, *, held: bool = False
) -> frozenset[Capability]:
    """Return the capabilities that a command may need.

    Args:
        parsed: the command.
        found: what it can do where it runs.
        held: whether a sandbox holds it, so that a file with secrets counts only where it may be
            shown: what is written or removed can be taken back.
    """
    if found.effect == "reads":
        return _READS
    needed = set(_RUNS)
    inner = tuple(inner_commands(parsed))
    loose = tuple(_loose(parsed))
    outward = any(part.effect == "outward" for part in found.parts)
    outward = outward or any(why_outward(one) or may_fetch(one) for one in inner)
    if outward or any(why_outward(one) or _connects(one) for one in loose):
        needed.add(_EGRESS)
    if any(map(deletes, (*inner, *loose))):
        needed.add(_DELETES)
    spoken = (*without_messages(inner), *loose)
    named = spoken
    if held and not any(map(_renames_programs, spoken)):
        named = (*map(_without_written, without_messages(inner)), *loose)
    shown = [part.place for part in found.parts if part.place.shows_credentials]
    if any(map(touches_secrets, named)) or any(is_in_git_data(one.directory) for one in shown):
        needed.add(_SECRETS)
    if shown and any(shows_git_configuration(_every_word(one)) for one in spoken):
        needed.add(_SECRETS)
    return frozenset(needed)


def _without_written(command: SimpleCommand) -> SimpleCommand:
    """Return a command without the files that it writes or removes, and does not read."""
    name, rest = command.words[0].text if command.words else None, command.words[1:]
    options = [word for word in rest if word.prefix.startswith("-")]
    written = [word for word in rest if word not in options]
    if name in {"cp", "mv"}:
        written = written[-1:] if len(written) > 1 else []
    is_plain = all(_PLAIN.fullmatch(word.text or "") for word in options)
    if name not in _WRITERS or not is_plain or any(word.text is None for word in rest):
        written = []
    return replace(
        command,
        words=(
            *command.words[:1],
            *[word for word in rest if all(word is not one for one in written)],
        ),
        redirections=tuple([one for one in command.redirections if one.operator not in _WRITES]),
    )


def _renames_programs(command: SimpleCommand) -> bool:
    """Return whether another program may run under a name that follows."""
    steers = any(one.name in {"PATH", "path", *_RUN_FIRST} for one in command.assignments)
    return steers or name_of(command) in _RENAMES


_WRITERS: Final = words("rm touch tee truncate cp mv")
_PLAIN: Final = re.compile("-[afiIprRnv]+|--|-s")
"""Options with which these programs only write or remove what they name, or the last of it."""
_WRITES: Final = words("> >> >| &> &>>")
_RENAMES: Final = words("alias shopt hash enable export declare typeset source . eval trap setopt")


def _loose(parsed: ParsedCommand) -> Iterator[SimpleCommand]:
    """Return commands that may begin at any word of a text that is not understood."""
    found = tuple(map(Word, parsed.every_loose_word()))
    return (SimpleCommand(words=found[at : at + _LOOK_AHEAD]) for at in range(len(found)))


_LOOK_AHEAD: Final = 6


def _connects(command: SimpleCommand) -> bool:
    """Return whether a text that is not understood may name `/dev/tcp`.

    Loose words have no slashes.
    """
    return [word.text for word in command.words[:2]] in (["dev", "tcp"], ["dev", "udp"])


def deletes(command: SimpleCommand) -> bool:
    """Return whether a command may delete files, or replace them for good."""
    name = name_of(command)
    rest = command.words[1:]
    return (
        name in word_set("deleters")
        or (name is not None and name.startswith("mkfs."))
        or (name == "git" and bool(_GIT_DELETERS & set(sub_commands(rest)[:1])))
        or any(word.prefix in _OPTIONS for word in rest)
    )


def _every_word(command: SimpleCommand) -> tuple[Word, ...]:
    """Return the words that may name a file to use: none that is left out, or listed as ignored."""
    targets = tuple([one.target for one in command.redirections])
    lists = name_of(command) == "echo" and any(
        _IGNORES.fullmatch(one.text or "") for one in targets
    )
    given = command.words[:1] if lists else command.words
    run = [one.value for one in command.assignments if one.name in _RUN_FIRST]
    return (*[one for one in given if not one.prefix.startswith("--exclude=")], *targets, *run)


_RUN_FIRST: Final = frozenset({"BASH_ENV", "ENV"})
"""Variables with a file that a shell runs first."""
_IGNORES: Final = re.compile(r"(?:\./)?\.\w+ignore")


def touches_secrets(command: SimpleCommand) -> bool:
    """Return whether a command names what holds secrets, or shows variables that may."""
    if names_a_secret(_every_word(command)):
        return True
    # `export X=1` gives a variable a value, and prints none.
    given, gives = command.words[1:], name_of(command) in _DECLARE
    gives = gives and bool(given) and all("=" in word.prefix for word in given)
    if gives or _sets_options(command):
        return False
    runs_nothing = unwrapped(command) in {None, Unwrapped()}
    return runs_nothing and name_of(command) in _SHOW_SECRETS


def _sets_options(command: SimpleCommand) -> bool:
    """Tell whether it is `set` with options alone, such as `set -o pipefail`, which prints none."""
    rest = command.words[1:] if name_of(command) == "set" else ()
    return bool(rest) and all(
        word.text == "pipefail" or word.prefix.startswith(("-", "+")) for word in rest
    )


_SPEAKERS: Final = words("git gh glab")
"""Programs whose options take messages."""
_SILENT: Final = words("cat echo cd pwd true :")
"""Programs that use their input neither as a file name nor as code."""
_FIELDS: Final = frozenset({"-f", "--raw-field"})
"""Options of `gh api` whose value is never the name of a file."""


def without_messages(commands: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """Return the commands without the messages in them, which no program opens as a file.

    `git commit -m "Read .env at the start"` names no secret. Only what is certain is left out:
    values of options that the table of families calls texts, of programs that send or store
    messages, and here-documents that reach no other program.
    """
    names = {name_of(command) for command in commands if command.words}
    return tuple(
        [_without_texts(_without_document(one) if names <= _QUIET else one) for one in commands]
    )


_QUIET: Final = _SPEAKERS | _SILENT


def _without_document(command: SimpleCommand) -> SimpleCommand:
    """Drop the text of `cat <<EOF` from a command if no other program could run the text."""
    if name_of(command) != "cat" or len(command.words) > 1:
        return command
    kept = [one for one in command.redirections if one.operator not in {"<<", "<<<"}]
    return replace(command, redirections=tuple(kept))


def _without_texts(command: SimpleCommand) -> SimpleCommand:
    if name_of(command) not in _SPEAKERS:
        return command
    given = hoisted(command.words)
    task = task_of(tuple(word.text or "" for word in given))
    if task is None:
        return command
    return replace(command, words=(*given[: len(task.path)], *_named(task, given)))


def _named(task: Task, given: Sequence[Word]) -> Iterator[Word]:
    """Yield the words of a command without its messages."""
    fields = _FIELDS if task.path[:2] == ("gh", "api") else frozenset[str]()
    options = [(name, one) for name, one in task.options.items() if one.kind == "t"]
    messages = frozenset([name for name, one in options if not one.stays]) - fields
    for word, name, value, _ in with_values(given[len(task.path) :], fields | messages):
        if name in fields and value is not None:
            yield Word(value.prefix.partition("=")[0])
        elif name not in messages:
            yield word
        elif value is not None:
            yield from _file_of(value)


def _file_of(value: Word) -> Iterator[Word]:
    """Yield the file that a text names for some programs, such as `@file`.

    It is None if there is none.
    """
    if value.prefix.startswith(("@", "file:")):
        yield value
