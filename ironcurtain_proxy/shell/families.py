"""Families of shell commands: sets of commands that one approval may cover.

A part of a command is reduced to a canonical form, its *family*: the program with its sub-command
or task, everything that could change the kind of its effect, and the directory where that matters.
Words that only choose what is worked on inside the project, or how it is shown, are left out. Two
parts belong to one family exactly if their forms are equal.

The reduction is a list of what may be left out, never of what must stay: an option that the table
does not name stays in the form together with the word behind it, an operand outside the project
stays, and of a program without an entry every word stays. So a gap in the table costs a question.

    go test -v -run TestX ./internal/store      go test
    black --check src/app                       black --check
    gh pr view 12 --repo other/app --json body  gh pr view --repo=other/app
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.request import (
    ONLY_READS,
    OWN_BRANCH,
    SERVICES,
    CommandPlace,
    DiskLookups,
    Family,
    ParsedCommand,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.shell.effects import Part, effect_of
from ironcurtain_proxy.shell.elsewhere import shows_objects
from ironcurtain_proxy.shell.family_table import (
    LAUNCHERS,
    YARN_RUNS,
    Task,
    archive_of,
    hoisted,
    is_free_path,
    names_what_is_never_general,
    never_general,
    reduced,
    script_of,
    sounds_protected,
    spelled,
    task_of,
)
from ironcurtain_proxy.shell.grammar import SHOWN_VARIABLES, is_of_no_file
from ironcurtain_proxy.shell.kinds import (
    CLIENTS,
    containers_of,
    database_of,
    graphql,
    of_fetches,
    plain_request,
    reading,
    reading_of_api,
    service_of,
)
from ironcurtain_proxy.shell.outward import (
    HARMLESS_VARIABLES,
    may_lead_elsewhere,
    sub_commands,
)
from ironcurtain_proxy.shell.places import (
    glob_directory,
    is_inside,
    is_of_project,
    is_protected_name,
    is_within,
    may_write,
    path_of,
)
from ironcurtain_proxy.shell.programs import word_set
from ironcurtain_proxy.shell.quiet import Disturbance, disturbances, is_quiet, scripts_run
from ironcurtain_proxy.shell.readers import why_not_git
from ironcurtain_proxy.shell.reading import reading_of_a_secret, reading_of_files


def families_of(
    parsed: ParsedCommand, place: CommandPlace, *, held: bool = False
) -> tuple[Family, ...] | None:
    """Return the families that all parts of a command need, or None if they are not known.

    Parts that only read need none.

    Args:
        parsed: the command.
        place: where it runs.
        held: a sandbox holds the command and the timeline takes back what it changes, so that
            parts which only change files of the workspace need none either.
    """
    found = _found(parsed, place, held=held)
    if found is None:
        return None
    families = [_settled(family, place, disturbed) for family, disturbed, _ in found]
    return tuple(dict.fromkeys(families))


def sought(parsed: ParsedCommand, place: CommandPlace) -> DiskLookups:
    """Return the facts to look up on the disk before the families of a command are used."""
    found = _found(parsed, place) or []
    families = [one for one, _, _ in found if one.defined_in and one.meaning is not None]
    parts = effect_of(parsed, place).parts
    return DiskLookups(
        families=tuple(dict.fromkeys(families)),
        reaching=tuple(
            dict.fromkeys(
                (one, part.place.directory) for one, _, part in found if part.effect == "outward"
            )
        ),
        paths=tuple(dict.fromkeys(_paths(parts))),
        globs=tuple(dict.fromkeys(_globs(parts))),
        scripts=scripts_run(parsed, place),
    )


def _globs(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        for word in part.command.words:
            directory = glob_directory(word, part.place)
            if directory is not None and is_inside(directory, part.place):
                yield directory


def _paths(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the paths of the workspace that a command may name."""
    for part in parts:
        at = part.place.directory
        if at is not None and is_inside(at, part.place):
            yield at
            # Behind `cd link`, `..` leads to where the link's target lies.
            yield from (f"{at}/{text}" for text in _texts(part) if ".." in text[:4])
        yield from [path for path in _named(part) if is_inside(path, part.place)]


def _named(part: Part) -> Iterator[str]:
    """Return the paths that a part may name, also in options: `--out=logs/x`, `-ologs/x`."""
    paths = (path_of(Word(text), part.place) for text in _texts(part))
    return (path for path in paths if path is not None)


def _texts(part: Part) -> Iterator[str]:
    redirected = [one.target for one in part.command.redirections]
    for word in (*part.command.words, *redirected):
        joined = word.prefix[2:] if word.prefix[:1] == "-" else ""
        # `-d @x` and `-F a=@x` of curl read a file.
        found = {word.prefix, word.prefix.partition("=")[2], joined}
        yield from (text.removeprefix("@") for text in found)


def _is_led_out(part: Part) -> bool:
    """Return whether a link leads a path that a part names out of the workspace."""
    place = part.place
    return bool(place.strays) and any(
        is_within(path, place.workspace or "/") and not is_inside(path, place)
        for path in _named(part)
    )


def _found(
    parsed: ParsedCommand, place: CommandPlace, *, held: bool = False
) -> list[tuple[Family, frozenset[Disturbance], Part]] | None:
    """Return the family of each part, with the changes that other parts may make to its meaning."""
    all_parts = effect_of(parsed, place).parts
    if parsed.unreadable is not None or len(all_parts) > _MOST_PARTS:
        return None
    parts = [part for part in all_parts if part.effect != "reads"]
    # A quiet assignment keeps an answer, under a name that changes no other part.
    keeping = [part for part in parts if held and not part.command.words and is_quiet(part)]
    quiet = [part for part in parts if _only_reads_elsewhere(part, held=held)]
    changing = [part for part in parts if part not in quiet and part not in keeping]
    found: list[tuple[Family, frozenset[Disturbance], Part]] = []
    for part in parts:
        if held and is_quiet(part):
            continue
        # By parts behind it, too: a part in the background may run first.
        beside = [one for one in changing if one is not part]
        others = disturbances(beside)
        known = replace(part, place=_known_beside(beside, part.place))
        family = family_of(known, all_parts, held=held)
        if family is None:
            return None
        leads_on = part.effect == "outward" and may_lead_elsewhere(part.command)
        if "shell" in others or _is_led_out(part) or leads_on:
            family = replace(family, is_general=False)
        # A hook behind a pull would run with the network open.
        family = of_fetches(family, held=held and not part.place.runs_hooks)
        if family.defined_in and not all(
            one.name in HARMLESS_VARIABLES for one in part.command.assignments
        ):
            # `GIT_DIR`, `MAKEFLAGS`, `npm_config_…` give the task another meaning.
            family = replace(family, meaning=None)
        found.append((family, others, part))
    return found


def _known_beside(beside: Sequence[Part], place: CommandPlace) -> CommandPlace:
    """Return a place without what other parts of the command may change in its repository."""
    if "branch" in disturbances(beside):
        place = replace(place, branch=None, push_to=None)
    makes_none = all(map(_makes_no_reference, beside))
    return place if makes_none else replace(place, own_branches=())


def _makes_no_reference(part: Part) -> bool:
    """Return whether a part adds neither a tag nor a branch of another name to a repository."""
    if part.program == "git":
        return "".join(sub_commands(part.command.words[1:])[:1]) in word_set("add-no-tag")
    return part.program in {"gh", "sleep"} or is_quiet(part)


def _settled(family: Family, place: CommandPlace, disturbed: frozenset[Disturbance]) -> Family:
    """Return a family with the facts from the disk.

    A fact that another part of the same command may change is not used.
    """
    hosts = place.hosts_of(family)
    if not family.defined_in or family.meaning is None:
        return replace(family, hosts=hosts)
    of_git = family.defined_in[0].endswith(GIT_CONFIGURATION)
    if ("remotes" if of_git else "files") in disturbed:
        return replace(family, meaning=None)
    if place.meanings is None:
        return family
    directory = None if of_git else family.directory
    meaning = place.meaning_of(family)
    # Where there is no repository, only the directory says which one is meant.
    is_of_remote = of_git and meaning not in {None, NO_REPOSITORY}
    return replace(
        family,
        meaning=meaning,
        directory=directory,
        defined_in=(),
        hosts=hosts,
        is_of_remote=is_of_remote,
    )


GIT_CONFIGURATION: Final = "/.git/config"
OTHER_REPOSITORY: Final = "/.git/commondir"
"""The first file that a family of reading in a repository outside the workspace is defined in."""
NO_REPOSITORY: Final = "absent"
"""The meaning of a family of git outside a repository."""


def family_of(part: Part, parts: Sequence[Part] = (), *, held: bool = False) -> Family | None:
    """Return the family of one part of a command; None if a word of it is only known when it runs.

    Args:
        part: of the command.
        parts: all parts of the command: one may be a `cat` that gives it a message or a secret.
        held: whether a sandbox holds the command.
    """
    found = reading_of_files(part) or reading_of_a_secret(part, parts)
    return found or _family_of(part, parts, held=held)


def _family_of(part: Part, parts: Sequence[Part], *, held: bool) -> Family | None:
    command, place = part.command, part.place
    around = _redirected(command, place)
    if around is None:
        return None
    for one in command.assignments:
        if one.value.text is None:
            return None
        around.append(f"{one.name}={one.value.text}")
    if not command.words:
        return Family(program=(), around=tuple(around), is_general=False)
    words = _plain_words(command, parts)
    if words is None:
        if _is_at_home(place):
            return _of_service(command, place, around)
        return _of_objects(command, place) if held and not around else None
    is_plain = held and not around
    elsewhere = None if _is_at_home(place) else _reading_elsewhere(words, place, held=is_plain)
    found = elsewhere or _of_words(words, place)
    return replace(found, around=tuple([one for one in around if not _says_nothing(one, found)]))


def _of_service(
    command: SimpleCommand, place: CommandPlace, around: Sequence[str]
) -> Family | None:
    """Return the family of a request of which a part is known only when it runs."""
    service = service_of(command.words, place, command.set_before)
    if service is None:
        return None
    return Family(program=(SERVICES,), kept=(service,), around=tuple(around))


def _of_objects(command: SimpleCommand, place: CommandPlace) -> Family | None:
    """Return the family of git in a repository elsewhere of which it shows any object.

    A sandbox holds the command: an option among the unknown words may run what git is set to run.
    """
    words = [Word("HEAD") if one.text is None else one for one in command.words]
    return _reading_elsewhere(words, place, held=True) if shows_objects(command) else None


def _says_nothing(around: str, family: Family) -> bool:
    """Return whether an assignment changes nothing of what a family does.

    To an install `CI` only says that nobody watches; a password opens the same database.
    """
    if family.program[0] in CLIENTS and family.program[1:] == (ONLY_READS,):
        return around.startswith(("PGPASSWORD=", "MYSQL_PWD="))
    return family.program[-1:] == ("install",) and around in {"CI=true", "CI=1"}


def _of_words(words: list[Word], place: CommandPlace) -> Family:
    """Return the family of a command without what stands around its words."""
    launcher, rest = _launched(words)
    rest = hoisted(rest) if rest else rest
    if rest[:2] == [Word("git"), Word("push")]:
        rest = _push_spelled_out(rest, place)
    task = task_of(tuple(word.text or "" for word in rest))
    script = script_of(rest, place)
    if script is not None and _is_at_home(place) and launcher == ():
        return _of_script(words, script, place)
    return _of_task(task, words, launcher, rest, place)


def _is_at_home(place: CommandPlace) -> bool:
    """Return whether a command runs in its project."""
    return place.directory is not None and is_of_project(place.directory, place)


def _of_task(
    task: Task | None,
    words: Sequence[Word],
    launcher: tuple[str, ...] | None,
    rest: Sequence[Word],
    place: CommandPlace,
) -> Family:
    """Return the family of a program that is no script of the project.

    `launcher` is None if the program that it starts is not known.
    """
    outside = not _is_at_home(place)
    files = () if task is None else task.files
    at = place.directory if files else None
    defined = tuple(posixpath.join(at, name) for name in files) if at else ()
    is_plain = launcher == () and not outside
    if is_plain and (service := service_of(rest, place)) is not None:
        return Family(program=(SERVICES,), kept=(service,))
    if is_plain and (database := database_of(rest)) is not None:
        return Family(program=(rest[0].text or "", ONLY_READS), kept=database)
    if is_plain and (account := containers_of(rest)) is not None:
        return Family(program=("ssh", "docker", ONLY_READS), kept=account)
    is_api = task is not None and task.path == ("gh", "api")
    asks_graphql = is_api and any(word.text == "graphql" for word in rest)
    known = graphql(rest[2:]) if asks_graphql else None
    is_unknown = task is None or launcher is None or (asks_graphql and known is None)
    archive = archive_of(rest) if task is not None and launcher is not None else None
    if archive is not None:
        defined, at = (path_of(archive, place) or "",), place.directory
    if task is None or outside or is_unknown or archive or never_general(rest, task):
        texts = tuple(map(spelled, words))
        where = place.directory if outside or task is None else at
        return Family(program=texts[:1], kept=texts[1:], directory=where,
                      is_general=False, defined_in=defined)  # fmt: skip
    path, kept = known or _of_kind(task, reduced(task, rest[len(task.path) :], place))
    kept = _without_own_name(kept, place) if path[0] == "gh" else kept
    wide = None
    if path == ("git", "push") and kept in {("origin", one) for one in place.own_branches}:
        wide = None if sounds_protected(kept[-1]) else (path, ("origin", OWN_BRANCH))
    return Family(program=(*(launcher or ()), *path), kept=kept, directory=at, defined_in=defined,
                  wide=wide)  # fmt: skip


def _without_own_name(kept: tuple[str, ...], place: CommandPlace) -> tuple[str, ...]:
    """Leave out the name of the repository to which all remotes lead: it says the same as none."""
    directory, forge = place.forge or (None, "")
    own = forge.removesuffix(".git").lower().partition("github.com/")
    return () if (own[0], kept, directory) == ("", (f"--repo={own[2]}",), place.directory) else kept


def _only_reads_elsewhere(part: Part, *, held: bool) -> bool:
    """Return whether a part changes nothing, whatever else it needs an approval for."""
    if part.command.assignments or _redirected(part.command, part.place) != []:
        return False
    objects = _of_objects(part.command, part.place) if held else None
    words = part.command.words
    return (objects or _reading_elsewhere(words, part.place, held=held)) is not None


def _reading_elsewhere(words: Sequence[Word], place: CommandPlace, *, held: bool) -> Family | None:
    """Return the family of all reading git commands of one repository elsewhere.

    git runs what the configuration of that repository says: the family holds while it is unchanged.
    If it is not known, as in a worktree or a subdirectory, only a sandbox can hold what git runs.
    """
    there = place.directory
    if there is None or is_inside(there, place) or is_protected_name(there):
        return None
    if not words or words[0].text != "git":
        return None
    as_its_own = replace(place, workspace=there, has_repository=True, strays=())
    if why_not_git(words[1:], as_its_own, SHOWN_VARIABLES) is not None:
        return None
    names = (OTHER_REPOSITORY, "/.git/config", "/.git/config.worktree")
    defined = tuple([there + name for name in names])
    found = Family(program=("git", ONLY_READS), directory=there, defined_in=defined)
    if place.meanings is None or place.meaning_of(found) is not None:
        return found
    # INVARIANT: where an agent writes, it could put a link to any repository.
    is_fixed = not may_write(there, place) and not is_within(there, place.workspace or "/")
    return replace(found, defined_in=()) if held and is_fixed else None


_MOST_PARTS: Final = 256
"""The most parts of a command that has families: each is compared with all others."""


def _of_kind(task: Task, kept: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sub-command, or its kind of sub-commands, and the words after it."""
    words = tuple(kept)
    if task.path == ("gh", "api"):
        words = plain_request(words)
        found = reading_of_api(words)
    else:
        found = reading(words) if task.only_reads else None
    return (task.path, words) if found is None else ((task.path[0], ONLY_READS), found)


def _of_script(words: Sequence[Word], script: str, place: CommandPlace) -> Family:
    """Return the family of a script of the project, with all its arguments."""
    texts = tuple(map(spelled, words))
    known = all(word.text is not None for word in words)
    return Family(
        program=texts[:1],
        kept=texts[1:],
        directory=place.directory,
        is_general=known and not names_what_is_never_general(texts),
        defined_in=(script,),
    )


def _push_spelled_out(words: list[Word], place: CommandPlace) -> list[Word]:
    """Return the words of a push with remote and branch, so that all spellings are one family."""
    operands = [word for word in words[2:] if not word.prefix.startswith("-")]
    texts = [word.text for word in operands]
    if place.push_to is not None and texts in ([], [place.push_to[0]]):
        return [*words, *(Word(text) for text in place.push_to[len(texts) :])]
    if len(operands) == 2 and texts[1] in {"HEAD", "@"} and place.branch is not None:  # noqa: PLR2004
        return [Word(place.branch) if word is operands[1] else word for word in words]
    return words


def _redirected(command: SimpleCommand, place: CommandPlace) -> list[str] | None:
    """Return the redirections of a family: all that write to a file."""
    kept: list[str] = []
    for one in command.redirections:
        target = one.target.text
        if is_of_no_file(one):
            continue
        if target is None:
            return None
        path = path_of(one.target, place)
        if one.operator == "<" and path is not None and is_free_path(one.target, place):
            continue
        kept.append(f"{one.operator} {target}")
    return kept


def _plain_words(command: SimpleCommand, parts: Sequence[Part]) -> list[Word] | None:
    """Return the words, or None if one is unknown.

    A glob, and a message from a here-document, may be unknown.
    """
    texts = any(
        part.program == "cat"
        and len(part.command.words) == 1
        and any(one.operator == "<<" for one in part.command.redirections)
        for part in parts
    )
    words: list[Word] = []
    for word in command.words:
        if word.text is None:
            message = texts and not word.splits and not word.variables
            glob = word.splits and not word.variables and word.prefix[:1] not in {"", "-"}
            if not message and not glob:
                return None
        words.append(word)
    return words


def _launched(words: Sequence[Word]) -> tuple[tuple[str, ...] | None, list[Word]]:
    """Return the launcher of a program, and the program with its arguments.

    The launcher of `npx eslint` is `npx`. `timeout 60 go test` has none: `timeout` is left out.
    """
    launcher: list[str] = []
    rest = list(words)
    while rest:
        texts = (*(word.text or "" for word in rest[:3]), "")
        if texts[0] in {"timeout", "gtimeout"} and re.fullmatch(r"[\d.]+[smhd]?", texts[1]):
            rest = rest[2:]
        elif texts[0] in {"time", "nice", "command"} and not texts[1].startswith("-"):
            rest = rest[1:]
        else:
            found = next((p for p in LAUNCHERS if texts[: len(p)] == p), None)
            if texts[0] == "yarn" and texts[1:2] in YARN_RUNS:
                found = ("yarn",)
            if found is None or len(rest) <= len(found):
                break
            if rest[len(found)].text is None or rest[len(found)].prefix.startswith("-"):
                return None, rest
            launcher += found
            rest = rest[len(found) :]
    return (tuple(launcher), rest) if rest else (None, rest)
