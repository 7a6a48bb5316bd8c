"""The roles of one text argument, by its name, format, description, default and neighbours.

Theory of operation. Names come first, because they are what programs use; a format or an example
counts as much. A description is prose that the server wrote about itself: it can only add care. It
turns an option or an identifier into a path or `unclear`, and never the other way round. So the
least careful role that a server can get for an argument is what the argument's name says.

An argument that stays in doubt is `unclear`: each of its texts is read by its form, and is sent
unchanged. A role of paths would rewrite a text that may be no path.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.config.annotating.proposal import (
    PATH_FORMATS,
    URL_FORMATS,
    WORDS,
    LikelyMeaning,
    Proposed,
    words_of,
)
from ironcurtain_proxy.model.annotation import Roles
from ironcurtain_proxy.model.values import Json

_PATHS: Final = WORDS["paths"]
_COMMANDS: Final = WORDS["commands"]
_ENDS: Final = WORDS["ends"]
_TEXTS: Final = WORDS["texts"]
_QUERIES: Final = WORDS["queries"]

_FILE: Final = r"(?:paths?|director(?:y|ies)|folders?|file ?names?|file ?paths?|working directory)"
_LEADING: Final = (
    r"(?:\W|(?:optional|required|the|an?|of|or|one|more|list|array|name|full|base|target|source|local"
    r"|absolute|relative|root|system|input|output|destination|file|directory|webhook|https?|web|page"
    r"|callback|image)\b)*"
)
"""The words that may stand before the first noun of a description. Each step takes a word or a
single character, so that no description makes the search long.
"""
_PATH_SUBJECT: Final = re.compile(
    rf"{_LEADING}\b(?:{_FILE}|files? (?:to|where|in which|containing))\b", re.IGNORECASE
)
_PATH_WORDS: Final = re.compile(
    r"\b(?:absolute|relative|file|filesystem|directory|folder|full|local|output|input|target)"
    rf"[ -]?{_FILE}\b"
    r"|\bpaths? (?:to|of|for|in|on|where)\b"
    r"|\b(?:local|existing|saved?) (?:file|directory|folder)\b"
    r"|\b(?:director(?:y|ies)|folders?|files?) (?:to|where|in which|containing)\b",
    re.IGNORECASE,
)
_URL_SUBJECT: Final = re.compile(rf"{_LEADING}\bUR[LI]s?\b", re.IGNORECASE)
_URL_WORDS: Final = re.compile(
    r"\bUR[LI]s?\b|https?://|\bweb ?(?:page|site|address)\b", re.IGNORECASE
)
_SQL_WORDS: Final = re.compile(
    r"(?<![a-z|])SQL\b(?! ?injection)|\bSELECT\b|(?i:\bpostgres(?:ql)?\b|\bmysql\b|\bsqlite\b)"
    r"|(?i:\bduckdb\b)"
    r"|\bclickhouse\b|\bsnowflake\b|\bbigquery\b|\bmariadb\b"
)
_OTHER_QUERIES: Final = re.compile(
    r"\b(?:GraphQL|Cypher|SPARQL|PromQL|ES\|QL|KQL|LogQL|MQL|aggregation)\b",
    re.IGNORECASE,
)
_RUNS: Final = re.compile(
    r"\b(?:command lines?|shell|terminal|bash|executes? (?:a |the |an )?(?:command|program|script)"
    r"|commands? to (?:run|execute)|run (?:a |the )?commands?)\b",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|localhost\b|(?:\d{1,3}\.){3}\d{1,3}\b")
_PLACE: Final = re.compile(
    r"(?:~|\.{1,2})?/|[A-Za-z]:\\|\.{1,2}$|[\w.-]+/[\w./-]+$|[\w-]+\.[a-z]{2,4}$"
)
_MENTIONED: Final = re.compile(r"(?:^|[\s(\"'`])((?:~|\.{1,2})?/[\w.-]+/[\w./-]*)")

_MOST: Final = 4_000
_MOST_EXAMPLE: Final = 300
_NONE: Final[Roles] = ("none",)
_UNCLEAR: Final[Roles] = ("unclear",)


class ArgumentContext(Struct, frozen=True, kw_only=True):
    """The tool around an argument."""

    words: frozenset[str]
    """The words of the tool's name."""
    text: str
    """The tool's title and description."""
    names: frozenset[str]
    """The names of all arguments of the tool, in lower case without `_` and `-`."""
    paths: Roles
    """The roles of a path, by the tool's effect."""
    shell: str | None = None
    """The argument that holds a command of the local shell."""
    says: bool = False
    """Whether the tool shows the text to other people."""
    is_github: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether paths are probably those of a service: beside the name of a repository."""
        return bool(
            self.names & {"owner", "repo", "projectid", "repoid", "workspaceslug", "reposlug"}
        )


def proposed_for(name: str, schema: Mapping[str, Json], about: ArgumentContext) -> Proposed:
    """Return the roles of a text argument."""
    said, form = _by_name(name, about), _by_format(schema, about)
    # A server must not open a path by giving it the format of a date.
    is_end = not _ENDS.isdisjoint(words_of(name)[-1:])
    is_grave = is_end or not _CALM.union(_UNCLEAR).issuperset(said.roles)
    if form is not None and not (is_grave and _CALM.issuperset(form.roles)):
        said = form
    text = " ".join([str(schema.get(key, "")) for key in ("title", "description")]).strip()[:_MOST]
    if said.roles == _NONE and not text and "format" not in schema:
        said = _in_doubt(name, about) or said
    return _raised(said, name, text, schema, about)


_LINES: Final = frozenset({"sh", "bash", "shell", "exec", "execute", "run", "terminal"})


_NAMING: Final = frozenset({"read", "get", "open", "show", "trash", "delete", "remove", "rename"})
"""Verbs of tools that take the name of a note, not its text."""


def _in_doubt(name: str, about: ArgumentContext) -> Proposed | None:
    """The proposal for a name without any description that is an option in other tools only."""
    words = words_of(name)
    if words in {("line",), ("lines",)} and about.words & _LINES:
        return Proposed(roles=_UNCLEAR, certain=False, why="a line that the tool may run")
    is_name = about.words & _NAMING or about.names & {"text", "content", "body"}
    if words in {("note",), ("notes",)} and is_name and not about.says:
        return Proposed(roles=("identifier",), why="the name of a note")
    is_end = len(words) == 1 and words[0] in WORDS["open_ends"]
    if is_end and about.names.isdisjoint(WORDS["moments"]):
        return Proposed(
            roles=_UNCLEAR, certain=False, why=f'the word "{words[0]}" may name a place'
        )
    return None


_FORMATS: Final[Mapping[str, Roles]] = MappingProxyType(
    {
        **dict.fromkeys(URL_FORMATS, ("fetch-url",)),
        **dict.fromkeys(("hostname", "idn-hostname", "ipv4", "ipv6"), ("fetch-url",)),
        **dict.fromkeys(("email", "idn-email"), ("email-address",)),
        **dict.fromkeys(("date", "time", "date-time", "duration"), ("none",)),
        "uuid": ("identifier",),
    }
)


def _by_format(schema: Mapping[str, Json], about: ArgumentContext) -> Proposed | None:
    said = schema.get("format")
    if not isinstance(said, str):
        return None
    is_path = said in PATH_FORMATS or "path" in said
    roles = about.paths if is_path else _FORMATS.get(said)
    if roles == ("fetch-url",) and _is_of_git(about):
        roles = ("git-remote-url",)
    return None if roles is None else Proposed(roles=roles, why=f"format {said[:40]}")


def _by_name(name: str, about: ArgumentContext) -> Proposed:
    words = words_of(name)
    last = words[-1] if words else ""
    if last in {"name", "names"} and words[-2:-1] and words[-2] in _PATHS:
        last = words[-2]
    if name == about.shell:
        return Proposed(roles=("command",), why="a command of the local shell")
    for read in (_of_programs, _of_places, _of_people, _of_service):
        found = read(words, last, about)
        if found is not None:
            return found
    if not (WORDS["options"] | _TEXTS).isdisjoint((last, last.removesuffix("s"), "".join(words))):
        return Proposed(roles=_NONE, why=f"the word {last}")
    return Proposed(roles=_UNCLEAR, certain=False, why="its name does not say what it holds")


def _of_programs(words: tuple[str, ...], last: str, about: ArgumentContext) -> Proposed | None:
    whole = "".join(words)
    if not WORDS["sql"].isdisjoint(words) or (last in _QUERIES and _speaks_of_sql(about)):
        return Proposed(roles=("sql",), why="SQL")
    if not _COMMANDS.isdisjoint((whole, last)) or (whole == "args" and _RUNS.search(about.text)):
        return Proposed(roles=_UNCLEAR, certain=False, why="a command, but not of the local shell")
    runs = about.words & {"run", "execute", "exec", "eval", "evaluate", "script", "code", "command"}
    if last in WORDS["code"] and (runs or last in {"script", "javascript", "js", "function"}):
        return Proposed(roles=_UNCLEAR, certain=False, why="a program, but not of the local shell")
    return None


def _of_people(words: tuple[str, ...], last: str, about: ArgumentContext) -> Proposed | None:
    if last in WORDS["people"] or (words in {("to",), ("from",)} and about.says):
        return Proposed(roles=("email-address",), why=f"the word {last}")
    if last in _TEXTS and about.says:
        return Proposed(roles=("message",), why="a text for other people")
    return None


def _speaks_of_sql(about: ArgumentContext) -> bool:
    return _is_sql(f"{' '.join(about.words)} {about.text}")


def _is_sql(text: str) -> bool:
    return _SQL_WORDS.search(text) is not None and not _OTHER_QUERIES.search(text)


def _of_places(words: tuple[str, ...], last: str, about: ArgumentContext) -> Proposed | None:
    whole = "".join(words)
    if whole in WORDS["git_remotes"] and _is_of_git(about):
        return Proposed(roles=("git-remote-url",), why="a remote of git")
    if not WORDS["urls"].isdisjoint((last, whole, *words[:1])):
        return Proposed(roles=("fetch-url",), why=f"the word {last}")
    if not _PATHS.isdisjoint((last, whole)) or whole.endswith(("path", "filename", "directory")):
        if about.is_remote and last not in {"cwd", "localpath"} and "local" not in words:
            return Proposed(roles=_UNCLEAR, certain=False, why="a path, perhaps of the service")
        return Proposed(roles=about.paths, why=f"the word {last}")
    if last in WORDS["maybe_paths"]:
        return Proposed(roles=_UNCLEAR, certain=False, why=f'the word "{last}" may name a file')
    return None


def _is_of_git(about: ArgumentContext) -> bool:
    return "git" in about.words


def _of_service(words: tuple[str, ...], last: str, about: ArgumentContext) -> Proposed | None:
    whole = "".join(words)
    if about.is_github and whole in {"owner", "organization", "org"}:
        return Proposed(roles=("github-owner",), why=f"the word {last}")
    if about.is_github and whole in {"repo", "repository"} and "owner" in about.names:
        return Proposed(roles=("github-repo",), why=f"the word {last}")
    named = not WORDS["identifiers"].isdisjoint((last, last.removesuffix("s")))
    if not named and not whole.endswith(("id", "ids", "key", "uuid")):
        return None
    if last == "token" and whole.startswith(("page", "next", "continuation")):
        return Proposed(roles=_NONE, why="a place in a list")
    return Proposed(roles=("identifier",), why=f"the word {last}")


_PATH_OR_URL: Final = re.compile(r"\bpaths?\b|\bUR[LI]s?\b|(?:^|\s)~?/\w", re.IGNORECASE)
_CALM: Final = frozenset({"none", "message", "identifier", "email-address"})


def _raised(
    said: Proposed, name: str, text: str, schema: Mapping[str, Json], about: ArgumentContext
) -> Proposed:
    """Return the proposal, raised by a description, a default or an example. Nothing lowers it."""
    words = words_of(name)
    if words and words[-1].removesuffix("s") in WORDS["numbers"] and not _PATH_OR_URL.search(text):
        return said
    is_text = bool(words) and words[-1] in _TEXTS
    path, url = _spoken_of(text, schema, is_text=is_text)
    # A description that mentions a path makes the role careful. Only a description that begins with
    # it makes a path likely.
    strong, _ = _spoken_of(text, schema, is_text=True)
    if not _CALM.issuperset(said.roles):
        is_both = (said.roles == ("fetch-url",) and path and not _URL_SUBJECT.match(text)) or (
            said.roles == about.paths and url and not _PATH_SUBJECT.match(text)
        )
        if is_both:
            return Proposed(roles=_UNCLEAR, certain=False, why="a URL or a path")
        is_program = not (_COMMANDS | WORDS["code"]).isdisjoint(words)
        named = not is_program and (strong or not _ENDS.isdisjoint(words[-1:]))
        is_path = said.roles == _UNCLEAR and named and not url
        return replace(said, likely="path") if is_path else said
    what = ["a path"] if path else ["a URL"] if url else []
    if _RUNS.search(text) and not is_text:
        what = ["a command"]
    if not what:
        asks = bool(words) and words[-1] in _QUERIES and said.roles == _NONE
        return Proposed(roles=("sql",), why="SQL") if asks and _is_sql(text) else said
    likely: LikelyMeaning = ""
    if what == ["a path"] and said.roles in {_NONE, ("message",)}:
        likely = "" if strong else "option"  # a pattern's description may speak of its file
    elif what == ["a path"] and strong:
        likely = "path"
    why = f"its description speaks of {what[0]}"
    return Proposed(roles=_UNCLEAR, certain=False, why=why, likely=likely)


def _spoken_of(text: str, schema: Mapping[str, Json], *, is_text: bool) -> tuple[bool, bool]:
    """Return whether a description, a default or an example speaks of a path, and of a URL.

    The description of a content may speak of the file that it is for.
    """
    examples = _examples(schema)
    path = bool(_PATH_SUBJECT.match(text)) or any(map(_PLACE.match, examples))
    url = bool(_URL_SUBJECT.match(text)) or any(map(_ADDRESS.match, examples))
    if is_text:
        return path, url
    return (
        path or bool(_PATH_WORDS.search(text) or _MENTIONED.search(text)),
        url or bool(_URL_WORDS.search(text)),
    )


def _examples(schema: Mapping[str, Json]) -> list[str]:
    found = [schema.get("default")]
    several = schema.get("examples")
    found += several[:20] if isinstance(several, list) else []
    return [one[:_MOST_EXAMPLE] for one in found if isinstance(one, str) and one]
