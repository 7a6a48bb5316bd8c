"""Families of shell commands: what one approval may cover later.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.approval.shell.secrets import names_a_secret
from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.effects import Part, effect_of
from ironcurtain_proxy.shell.family_table import (
    AFTER,
    GENERIC,
    LAUNCHERS,
    Task,
    hoisted,
    never_general,
    task_of,
)
from ironcurtain_proxy.shell.places import (
    Place,
    is_inside,
    is_protected_name,
    is_within,
    path_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a part of a command has in common with others of its kind."""

    program: tuple[str, ...]
    """The program, what it is started by, and its sub-command or task."""
    kept: tuple[str, ...] = ()
    """Options and operands that belong to the family, in the order given where that may matter."""
    directory: str | None = None
    """Where it runs, if that decides what a task means."""
    is_general: bool = True
    """Whether other commands belong to it. If not, an approval holds for this session only."""
    defined_in: tuple[str, ...] = ()
    """Files that may give the task its meaning, the first that exists counts."""

    def words(self) -> str:
        """The family as a person would write it."""
        shown = " ".join([*self.program, *self.kept])
        return shown if self.is_general else f"exactly {shown}"


def families_of(parsed: ParsedCommand, place: Place) -> tuple[Family, ...] | None:
    """The families that all parts of a command need; None if that cannot be told.

    Parts that only read need none.
    """
    if parsed.unreadable is not None:
        return None
    found = effect_of(parsed, place)
    families: dict[Family, None] = {}
    for part in found.parts:
        if part.effect == "reads":
            continue
        family = family_of(part, found.parts)
        if family is None:
            return None
        families[family] = None
    return tuple(families)


def covers(granted: Sequence[Family], parsed: ParsedCommand, place: Place) -> bool:
    """Whether every part of a command belongs to a family that was approved."""
    needed = families_of(parsed, place)
    return needed is not None and all(family in granted for family in needed)


def family_of(part: Part, parts: Sequence[Part] = ()) -> Family | None:
    """The family of one part; None if a word in it is only known when it runs."""
    command, place = part.command, part.place
    kept = _redirected(command, place)
    if kept is None:
        return None
    for one in command.assignments:
        if one.value.text is None:
            return None
        kept.append(f"{one.name}={one.value.text}")
    if not command.words:
        return Family(program=(), kept=tuple(kept), is_general=False)
    words = _plain_words(command, parts)
    if words is None:
        return None
    outside = place.directory is None or not is_inside(place.directory, place)
    launcher, rest = _launched(words)
    rest = hoisted(rest) if rest else rest
    if rest[:2] == [Word("git"), Word("push")]:
        rest = _push_spelled_out(rest, place)
    task = task_of(tuple(word.text or "" for word in rest))
    if task is None or outside or launcher is None or never_general(rest, task):
        texts = tuple(word.text or "*" for word in words)
        where = place.directory if outside or task is None else None
        return Family(program=texts[:1], kept=(*texts[1:], *kept), directory=where,
                      is_general=False)  # fmt: skip
    kept += _reduced(task, rest[len(task.path) :], place)
    directory = place.directory if task.has_meaning else None
    defined = tuple(posixpath.join(directory, name) for name in task.files) if directory else ()
    return Family(
        program=(*launcher, *task.path),
        kept=tuple(kept),
        directory=directory,
        defined_in=defined,
    )


def _push_spelled_out(words: list[Word], place: Place) -> list[Word]:
    """A push with its remote and branch, so that each spelling of it is the same family."""
    operands = [word for word in words[2:] if not word.prefix.startswith("-")]
    if not operands and place.push_to is not None:
        return [*words, *(Word(text) for text in place.push_to)]
    if len(operands) == 2 and operands[1].text == "HEAD" and place.branch is not None:  # noqa: PLR2004
        return [Word(place.branch) if word is operands[1] else word for word in words]
    return words


def _redirected(command: SimpleCommand, place: Place) -> list[str] | None:
    """Redirections that belong to the family: all that write to a file."""
    kept: list[str] = []
    for one in command.redirections:
        target = one.target.text
        harmless = one.operator in {"<&-", ">&-"} or target == "/dev/null"
        if harmless or (one.operator in {">&", "<&"} and (target or "").isdigit()):
            continue
        if target is None:
            return None
        path = path_of(one.target, place)
        if one.operator == "<" and path is not None and _is_free_path(one.target, place):
            continue
        kept.append(f"{one.operator} {target}")
    return kept


def _plain_words(command: SimpleCommand, parts: Sequence[Part]) -> list[Word] | None:
    """The words, none of them unknown but for globs, and messages from a here-document."""
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
    """What starts the program, and the program with its words.

    `timeout 60 go test` is started by nothing that matters; `npx eslint` by npx.
    """
    launcher: list[str] = []
    rest = list(words)
    while rest:
        texts = tuple(word.text or "" for word in rest[:3])
        if texts[0] in {"timeout", "gtimeout"} and re.fullmatch(r"[\d.]+[smhd]?", texts[1]):
            rest = rest[2:]
        elif texts[0] in {"time", "nice", "command"} and not texts[1].startswith("-"):
            rest = rest[1:]
        else:
            found = next((p for p in LAUNCHERS if texts[: len(p)] == p), None)
            if found is None or len(rest) <= len(found):
                break
            if rest[len(found)].text is None or rest[len(found)].prefix.startswith("-"):
                return None, rest
            launcher += found
            rest = rest[len(found) :]
    return (tuple(launcher), rest) if rest else (None, rest)


def _reduced(task: Task, words: Sequence[Word], place: Place) -> list[str]:
    """The options and operands that belong to the family."""
    options: set[str] = set()
    operands: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        at += 1
        if word.text == "--":
            after = task.after if task.after is not None else AFTER
            inner = _reduced(after, words[at:], place)
            return [*sorted(options), *operands, *(["--", *inner] if inner else ())]
        if word.text is not None and word.text.startswith(("-", "+")) and len(word.text) > 1:
            kept, width = _option(task, word.text, following, place)
            options.update(kept)
            at += width
            continue
        if not _is_free(task, word, len(operands), place):
            operands.append(_shortened(task, word))
    return [*sorted(options), *operands]


def _option(task: Task, text: str, following: Word | None, place: Place) -> tuple[list[str], int]:
    """What stays of an option, and how many more words it takes."""
    name, equals, value = text.partition("=")
    kind = task.options.get(name) or GENERIC.get(name)
    if kind is None and not text.startswith("--") and len(text) > 2:  # noqa: PLR2004
        return _cluster(task, text, following, place)
    if kind is None:
        # Whether it takes a value is not known: the next word stays with it.
        if equals or following is None or following.prefix.startswith("-"):
            return [text], 0
        return [f"{text} {following.text or following.pattern}"], 1
    if kind in {"flag", "keep"}:
        if equals:
            return [text], 0
        return ([name], 0) if kind == "keep" else ([], 0)
    given = Word(value) if equals else following
    width = 0 if equals else 1
    if given is None:
        return [text], 0
    if kind == "field=" and given.text is not None:
        field, _, content = given.text.partition("=")
        plain = content and not content.startswith("@")
        return [f"{name}={field if plain else given.text}"], width
    free = kind != "keep=" and _is_free_value(kind, given, place)
    return ([], width) if free else ([f"{name}={given.text or given.pattern}"], width)


def _cluster(task: Task, text: str, following: Word | None, place: Place) -> tuple[list[str], int]:
    """`-xvs`, `-j8`."""
    kept: list[str] = []
    for at, letter in enumerate(text[1:], start=2):
        kind = task.options.get(f"-{letter}") or GENERIC.get(f"-{letter}")
        if kind is None:
            width = 0 if following is None or following.prefix.startswith("-") else 1
            extra = "" if width == 0 or following is None else f" {following.text}"
            return [f"{text}{extra}"], width
        if kind == "keep":
            kept.append(f"-{letter}")
        elif kind != "flag":
            more, width = (
                _option(task, f"-{letter}={text[at:]}", None, place)
                if text[at:]
                else (_option(task, f"-{letter}", following, place))
            )
            return [*kept, *more], width
    return kept, 0


_NUMBER: Final = re.compile(r"[\d.]+(?:[smhd]|ms|%|[KMG]i?B?)?", re.ASCII)
_WORD: Final = re.compile(r"[\w:,+%-]+(?:\.[\w:,+%-]+)*")
_FORMATS: Final = frozenset(
    [
        "json",
        "jsonl",
        "ndjson",
        "yaml",
        "yml",
        "xml",
        "junit",
        "text",
        "txt",
        "plain",
        "csv",
        "tsv",
        "table",
        "wide",
        "name",
        "html",
        "markdown",
        "md",
        "verbose",
        "dot",
        "dots",
        "tap",
        "spec",
        "compact",
        "stylish",
        "unix",
        "checkstyle",
        "github",
        "pretty",
        "short",
        "long",
        "line",
        "list",
        "default",
        "documentation",
        "progress",
        "offenses",
        "gcc",
        "tty",
        "sarif",
        "colorized",
        "parseable",
        "human",
        "concise",
        "full",
        "grouped",
        "quiet",
        "silent",
        "summary",
        "standard-verbose",
        "standard-quiet",
        "pkgname",
        "testname",
        "testdox",
        "minimal",
        "normal",
        "detailed",
        "diagnostic",
        "diag",
        "d",
        "n",
        "q",
        "m",
        "v",
        "auto",
        "native",
        "no",
        "long-json",
        "simple",
        "tree",
        "none",
        "basic",
        "nocolor",
        "errors",
        "all",
        "failures",
        "clang",
        "msvs",
        "visualstudio",
        "color",
        "emacs",
        "rich",
        "live",
        "rawtext",
        "expanded",
        "always",
        "never",
    ]
)
_TEMPLATES: Final = ("jsonpath=", "go-template=", "custom-columns=", "format:", "%")


def _is_free_value(kind: str, word: Word, place: Place) -> bool:
    """Whether the value of an option may be left out."""
    if word.text is None:
        return kind == "text=" and not word.splits
    text = word.text
    match kind:
        case "text=":
            return not text.startswith(("@", "file:"))
        case "number=":
            return bool(_NUMBER.fullmatch(text) or re.fullmatch(r"\d+", text))
        case "word=":
            return bool(_WORD.fullmatch(text))
        case "format=":
            return text in _FORMATS or text.startswith(_TEMPLATES) or "{{" in text
        case "path=":
            return _is_free_path(word, place)
        case _:
            return False


def _is_free(task: Task, word: Word, index: int, place: Place) -> bool:
    """Whether an operand may be left out."""
    match task.operands:
        case "paths":
            return _is_free_path(word, place)
        case "text":
            return word.text is not None
        case "names":
            return bool(re.fullmatch(r"[\w.:@/#-]+", word.text or "")) and _is_free_path(
                word, place
            )
        case "first":
            return index > 0 and _is_free_path(word, place)
        case _:
            return False


def _shortened(task: Task, word: Word) -> str:
    """An operand of the family; numbers in the paths of an API stand for any."""
    text = word.text if word.text is not None else word.pattern
    if task.operands == "api":
        return re.sub(r"(?<=/)\d+(?=/|$)", "N", text.partition("?")[0])
    if task.operands == "bucket":
        found = re.match(r"\w+://[^/]+", text)
        return found[0] if found else text
    return text


_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+/")
"""`github.com/other/package`: a name that looks like a path of the project."""
_TEST_PART: Final = re.compile(r"(?:::|#|:\d|\[).*$", re.DOTALL)


def _is_free_path(word: Word, place: Place) -> bool:
    """Whether a word is a file, a package or a pattern inside the project, and no more."""
    text = word.text if word.text is not None else word.pattern
    if "://" in text or not text or "\n" in text or names_a_secret([word]):
        return False
    if ".." in re.split(r"[/\\]", text.replace("...", "")) or text.startswith(("~", "@", "+", "-")):
        return False
    if is_protected_name(text) or _HOST.match(text):
        return False
    plain = _TEST_PART.sub("", text) if not text.startswith("//") else text.removeprefix("//")
    path = path_of(Word(plain or "."), place)
    return path is not None and is_inside(path, place)


def is_project(path: str, place: Place) -> bool:
    """Whether a directory is the workspace, or lies in it."""
    return place.workspace is not None and is_within(path, place.workspace)
