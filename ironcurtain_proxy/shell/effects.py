"""The effect of a shell command outside its sandbox.

Theory of operation: a command is parsed into simple commands, without their pipes, lists and
substitutions. Each is judged by tables of programs, commands handed to another shell included. The
effect of the whole is the worst of its parts:

    reads    every part is known to only read                          (`reads`)
    local    no part is known to need anything outside the sandbox
    unknown  the text cannot be parsed as a command
    beyond   a part writes or deletes where the sandbox cannot hold it, changes the machine, or
             reads files of the user's outside the workspace
    outward  a part is known to reach a host, a registry, a cluster    (`outward`)

Only `reads` is proved by the tables. `local` and `unknown` are safe only because a sandbox holds
them: without a sandbox, or with a network, they are asked about like the others. So a program that
no table knows can never pass for harmless outside a sandbox.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.request import CommandPlace, ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.elsewhere import (
    ELSEWHERE,
    leads,
    names_elsewhere,
    opens_files,
    reads_elsewhere,
    runs_one_of,
    shows_no_content,
    takes_names,
    tells,
    written,
)
from ironcurtain_proxy.shell.grammar import (
    MOVED,
    SHOWN_VARIABLES,
    behind_options,
    directory_after,
    grammar_of,
    reading_program,
    shows_variables,
    why_not_assign,
    why_not_reader,
    why_not_redirect,
)
from ironcurtain_proxy.shell.kinds import asks_this_machine_alone
from ironcurtain_proxy.shell.outward import (
    may_lead_elsewhere,
    name_of,
    targets_of,
    why_beyond,
    why_outward,
)
from ironcurtain_proxy.shell.places import (
    LED_OUT,
    OUTSIDE,
    is_in_git_data,
    shows_git_configuration,
    why_not_list,
)
from ironcurtain_proxy.shell.programs import entries, word_set
from ironcurtain_proxy.shell.readers import (
    CHECKS,
    VERSIONS,
    why_not_find,
    why_not_git,
    why_not_test,
)
from ironcurtain_proxy.shell.wrappers import unwrapped

EffectLevel: TypeAlias = Literal["reads", "local", "unknown", "beyond", "outward"]

_ORDER: Final[tuple[EffectLevel, ...]] = ("reads", "local", "unknown", "beyond", "outward")
_DEPTH: Final = 8
_TRUSTED: Final = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"})


class Part(Struct, frozen=True, kw_only=True):
    """One simple command of a command, and its effect."""

    command: SimpleCommand
    effect: EffectLevel
    reason: str
    """The reason, which names programs and options, never the values of arguments."""
    place: CommandPlace
    """The place where the part runs, after each `cd` before it."""

    @property
    def program(self) -> str | None:
        """The program's name without a directory, or None if it is not known."""
        return name_of(self.command)


class CommandEffect(Struct, frozen=True, kw_only=True):
    """The effect of a command."""

    effect: EffectLevel
    reason: str
    parts: tuple[Part, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the outward parts name, in their order."""
        outward = (part for part in self.parts if part.effect == "outward")
        return tuple(dict.fromkeys(one for part in outward for one in targets_of(part.command)))


def worst(effects: Sequence[EffectLevel]) -> EffectLevel:
    """Return the worst of several effects; `reads` of none."""
    return max(effects, key=_ORDER.index, default="reads")


def effect_of(parsed: ParsedCommand, place: CommandPlace) -> CommandEffect:
    """Return the effect of a command in its directory. Never raises."""
    parts = tuple(_parts(parsed, place, _DEPTH))
    if parsed.has_background and any(part.effect == "local" for part in parts):
        parts = tuple(map(_asking_its_own, parts))
    parts = _with_what_is_told(parts)
    found = worst([part.effect for part in parts])
    if parsed.unreadable is not None:
        leads_out = any(names_elsewhere(Word(None, one), place) for one in parsed.loose_paths)
        found = worst([found, "beyond" if leads_out else "unknown"])
    elif not parts:
        return CommandEffect(effect="local", reason="it runs nothing", parts=())
    if found == "unknown":
        reason = f"it cannot be read as a command: {parsed.unreadable}"
    else:
        unclear = f"{LEADS_OUT}: {parsed.unreadable}"
        reason = next((part.reason for part in parts if part.effect == found), unclear)
    return CommandEffect(effect=found, reason=reason, parts=parts)


def _with_what_is_told(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts with those that read elsewhere which hand a name on to another part."""
    told = [
        part
        for part in parts
        if part.effect in {"reads", "local"} and tells(part.command, part.place)
    ]
    if not told:
        return parts
    running = [part for part in parts if part not in told and part.effect != "reads"]
    takes = [part for part in running if takes_names(part.command)]
    files = frozenset[str]().union(*[written(part.command) for part in told]) - {""}
    takes += [part for part in parts if files and runs_one_of(part.command, files)]
    others = [part for part in parts if opens_files(part.command)]
    found = [
        part
        for part in told
        if any(one.command is not part.command for one in takes)
        or (
            leads(part.command, part.place)
            and any(one.command is not part.command for one in others)
        )
    ]
    return tuple([
        replace(one, effect="beyond", reason=ELSEWHERE) if one in found else one for one in parts
    ])  # fmt: skip


LEADS_OUT: Final = "it may read files outside the workspace, and cannot be read as a command"


def _asking_its_own(part: Part) -> Part:
    """Return a part as a local one if it asks a service that the same command starts.

    In its sandbox a command has an own loopback: the service is there, and nothing else is.
    """
    if part.effect != "outward" or not asks_this_machine_alone(part.command.words):
        return part
    reason = f"{part.program} asks what the same command starts"
    return replace(part, effect="local", reason=reason)


def _parts(parsed: ParsedCommand, place: CommandPlace, depth: int) -> Iterator[Part]:
    tainted = _tainted(parsed)
    for command in parsed.commands:
        yield from _part(command, place, _Variables(SHOWN_VARIABLES, tainted), depth)
        place = _after(command, place)


def effect_of_part(command: SimpleCommand, place: CommandPlace) -> EffectLevel:
    """Return the effect of one simple command in its directory, after each `cd` before it."""
    variables = _Variables(SHOWN_VARIABLES, frozenset())
    return worst([part.effect for part in _part(command, place, variables, _DEPTH)])


class _Variables(Struct, frozen=True):
    """The variables whose value a command may show."""

    shown: frozenset[str]
    tainted: frozenset[str]
    """Variables that the text may give a value which must not be shown."""

    def at(self, command: SimpleCommand) -> "_Variables":
        """Return the variables at a command: what the text has set before it may be shown."""
        before = command.set_before - self.tainted
        return replace(self, shown=self.shown | before) if before else self


def _tainted(parsed: ParsedCommand) -> frozenset[str]:
    """Return the variables that may get the value of another one, which must not be shown."""
    given = [
        (one.name, one.value.variables - SHOWN_VARIABLES, command.set_before)
        for command in parsed.every_command()
        for one in command.assignments
    ]
    tainted: set[str] = set()
    while True:
        more = {name for name, used, before in given if not used <= before - tainted} - tainted
        if not more:
            return frozenset(tainted)
        tainted |= more


_MOVES: Final = frozenset({"cd", "pushd", "popd", "chdir"})


def _after(command: SimpleCommand, place: CommandPlace) -> CommandPlace:
    """Return the surroundings after a command, which may be a `cd`."""
    inner = _inner(command, _DEPTH) or []
    names = {name_of(one) for one in (command, *inner)}
    if not names & _MOVES:
        return place
    if name_of(command) in {"command", "builtin", "time"} and len(inner) == 1:
        command = replace(command, words=inner[0].words)
    direct = name_of(command) in {"cd", "pushd"} and not command.assignments
    if not command.is_certain or not direct:
        return _elsewhere(place, None)
    there = directory_after(command.words[1:], place)
    if there is not None and there == place.directory:
        return place
    return _elsewhere(place, there)


def _elsewhere(place: CommandPlace, directory: str | None) -> CommandPlace:
    """Return the place after a change of directory.

    Another directory may belong to another repository.
    """
    strays = (*place.strays, MOVED) if directory is None else place.strays
    return replace(
        place, directory=directory, has_repository=False, branch=None, push_to=None, strays=strays
    )


def _part(
    command: SimpleCommand, place: CommandPlace, variables: _Variables, depth: int
) -> Iterator[Part]:
    command, place = _in_its_directory(command, place)
    variables = variables.at(command)
    reason = _why_not_read(command, place, variables.shown) or _why_not_move(command, place)
    if reason is None:
        yield Part(command=command, effect="reads", reason="it only reads", place=place)
        return
    inner = _inner(command, depth)
    if inner is not None:
        there = place
        for one in inner:
            yield from _part(one, there, variables, depth - 1)
            there = _after(one, there)
        reason = _around(command, place, variables.shown)
        if reason is None:
            return
    yield _more_than_reading(command, place, reason, variables.shown)


def _why_not_move(command: SimpleCommand, place: CommandPlace) -> str | None:
    """Return why a `cd` that may run or not does more than read: in a loop, all runs there."""
    if command.is_certain or name_of(command) != "cd":
        return None
    there = directory_after(command.words[1:], place)
    return None if there is None else why_not_list(Word(there), place)


def _more_than_reading(
    command: SimpleCommand, place: CommandPlace, reason: str, shown: frozenset[str]
) -> Part:
    outside = why_outward(command)
    if outside is not None:
        if may_lead_elsewhere(command):
            outside += ", perhaps an unknown host: an option or a variable may lead it there"
        return Part(command=command, effect="outward", reason=outside, place=place)
    beyond = why_beyond(command, place) or (ELSEWHERE if reads_elsewhere(command, place) else None)
    is_elsewhere = reason in (*OUTSIDE, LED_OUT) and not shows_no_content(command)
    if beyond is None and is_elsewhere and only_reads_elsewhere(command, place, shown):
        beyond = LED_OUT if reason == LED_OUT else ELSEWHERE
    if beyond is not None:
        return Part(command=command, effect="beyond", reason=beyond, place=place)
    name = name_of(command)
    text = f"{name}: {reason}" if name else reason
    return Part(command=command, effect="local", reason=text, place=place)


def _in_its_directory(
    command: SimpleCommand, place: CommandPlace
) -> tuple[SimpleCommand, CommandPlace]:
    """Rewrite `git -C DIR status` to `git status` in that directory."""
    while name_of(command) == "git" and [word.text for word in command.words[1:2]] == ["-C"]:
        there = directory_after(command.words[2:3], place)
        if there is None:
            break
        place = place if there == place.directory else _elsewhere(place, there)
        command = replace(command, words=(command.words[0], *command.words[3:]))
    return command, place


def _inner(command: SimpleCommand, depth: int) -> list[SimpleCommand] | None:
    """Return the commands that a command runs itself, or None if it runs none that is known."""
    found = unwrapped(command) if depth > 0 else None
    if found is None:
        return None
    return [*found.commands, *[one for text in found.texts for one in text.commands]] or None


def _around(command: SimpleCommand, place: CommandPlace, variables: frozenset[str]) -> str | None:
    """Return why a command that runs others does more than they do, or None if it does not."""
    for redirection in command.redirections:
        reason = why_not_redirect(redirection, place, variables)
        if reason is not None:
            return reason
    for assignment in command.assignments:
        reason = why_not_assign(assignment, alone=False, variables=variables)
        if reason is not None:
            return reason
    words = command.words
    match _trusted_name(words[0]):
        case "time" | "nice" | "command" | "builtin" | "timeout" as name:
            rest = behind_options(grammar_of(entries("transparent")[name]), words[1:])
            return None if rest and rest[0].text is not None else "an option is not known"
        case "sh" | "bash" | "zsh" | "dash":
            text = words[2].command if len(words) > 2 and words[1].text == "-c" else None  # noqa: PLR2004
            is_alone = len(words) == 3  # noqa: PLR2004  what follows are words of the text
            readable = is_alone and text is not None and not text.unreadable and text.commands
            return None if readable else "what it would run is not known"
        case _:
            return "it runs another program"


def _trusted_name(word: Word) -> str | None:
    directory, slash, name = (word.text or "").rpartition("/")
    return name if name and (not slash or directory in _TRUSTED) else None


def only_reads_elsewhere(
    command: SimpleCommand, place: CommandPlace, variables: frozenset[str] = SHOWN_VARIABLES
) -> bool:
    """Return whether a command would only read if its files lay in the workspace."""
    return _why_not_read(command, replace(place, workspace="/", strays=()), variables) is None


def _why_not_read(
    command: SimpleCommand, place: CommandPlace, variables: frozenset[str]
) -> str | None:
    reasons = [why_not_redirect(one, place, variables) for one in command.redirections]
    alone = not command.words
    reasons += [
        why_not_assign(one, alone=alone, variables=variables) for one in command.assignments
    ]
    named = (*command.words, *(one.target for one in command.redirections))
    if place.shows_credentials and (
        is_in_git_data(place.directory) or shows_git_configuration(named)
    ):
        reasons.append("git's configuration there holds a password or a token")
    if any(reasons) or alone:
        return next((reason for reason in reasons if reason is not None), None)
    name = _trusted_name(command.words[0])
    rest = command.words[1:]
    if name is None:
        return "a program is not known"
    if name in VERSIONS and [word.text for word in rest] in (["--version"], ["-V"]):
        return None
    special = _SPECIAL.get(name)
    if special is not None:
        return special(rest, place, variables)
    found = reading_program(name)
    if found is None:
        return "it is not known to only read"
    return why_not_reader(found, rest, place, variables, CHECKS)


def _cd(rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]) -> str | None:
    del variables
    return "where it leads is not known" if directory_after(rest, place) is None else None


def _echo(rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]) -> str | None:
    del place
    return shows_variables(rest, variables)


def _set(rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]) -> str | None:
    """Return why `set` does more than set options; without arguments it prints variables."""
    del place, variables
    plain = bool(rest) and all(word.text in _SETTINGS for word in rest)
    return None if plain else "it changes the shell"


def _command(rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]) -> str | None:
    """Return why `command` does more than `command -v NAME`, which prints a program's place."""
    del place, variables
    asks = bool(rest) and rest[0].text == "-v" and all(word.text is not None for word in rest)
    return None if asks else "it runs another program"


_SPECIAL: Final[
    Mapping[str, Callable[[Sequence[Word], CommandPlace, frozenset[str]], str | None]]
] = {
    "git": why_not_git,
    "[": functools.partial(why_not_test, "["),
    "[[": functools.partial(why_not_test, "[["),
    "test": functools.partial(why_not_test, "test"),
    "find": why_not_find,
    "cd": _cd,
    "echo": _echo,
    "basename": _echo,
    "dirname": _echo,
    "set": _set,
    "command": _command,
}
_SETTINGS: Final = word_set("shell-settings")
