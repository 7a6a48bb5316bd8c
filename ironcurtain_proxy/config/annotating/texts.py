"""What texts indicate: the words that mark a tool's arguments and effects, and its commands.

Only a command for the local shell counts as a command. A text for another interpreter or another
machine would be judged by its meaning here, so a tool that runs such a text is `unknown`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import Roles, ToolEffect
from ironcurtain_proxy.model.values import Json, list_of, words

# --- proposal


LOCAL_PATHS: Final = frozenset(
    {"read-path", "write-path", "delete-path", "write-history", "delete-history"}
)
LOCAL_ROLES: Final = LOCAL_PATHS | {"command"}
"""Roles that name something of this machine, and nothing of a server on another one."""

LikelyMeaning: TypeAlias = Literal["", "path", "option"]
"""The probable meaning of a text, or empty if none is more probable than others."""


class Proposed(Struct, frozen=True, kw_only=True):
    """The roles of one argument, or of one member of an object in it."""

    roles: Roles
    certain: bool = True
    """Whether the roles are certain; False: several are possible, and these are the most careful.
    """
    why: str = ""
    """The evidence, in a few words."""
    likely: LikelyMeaning = ""
    """The probable meaning of an unclear text. `init` relies on it; the roles do not."""
    inside: Mapping[str, "Proposed"] = field(default_factory=dict)
    """The members of an object, or of objects in a list. `roles` are for all other members."""

    def as_json(self) -> Json:
        """Return the entry in `tool-annotations.json`."""
        inside: dict[str, Json] = {name: one.as_json() for name, one in self.inside.items()}
        if all(one == [*self.roles] == ["none"] for one in inside.values()):
            return [*self.roles]
        return {"default": [*self.roles], "inside": inside}

    def elsewhere(self) -> "Proposed":
        """Propose for a server on another machine: no role names a path or a command."""
        inside = {name: one.elsewhere() for name, one in self.inside.items()}
        if LOCAL_ROLES.isdisjoint(self.roles):
            return replace(self, inside=inside)
        why = "the server runs on another machine"
        return Proposed(roles=("unclear",), certain=False, why=why, inside=inside)

    def each(self, name: str) -> Iterator[tuple[str, "Proposed"]]:
        """Yield proposals for an argument and all its members, by name: `files`, `files.path`."""
        yield name, self
        for member, one in self.inside.items():
            yield from one.each(f"{name}.{member}")


class ProposedTool(Struct, frozen=True, kw_only=True):
    """A tool with the roles of its arguments and its effect."""

    name: str
    arguments: Mapping[str, Proposed]
    effect: ToolEffect | None
    """The effect, or None if it is not known, so containment never settles a call."""
    why: str = ""
    """The evidence."""
    paths: Roles = ()
    """The roles that a path of the tool has."""

    def elsewhere(self) -> "ProposedTool":
        """Return the proposal for a server on another machine."""
        arguments = {name: one.elsewhere() for name, one in self.arguments.items()}
        return replace(self, arguments=arguments)

    def uncertain(self) -> tuple[str, ...]:
        """Return the names of arguments and members that are not certain."""
        found = [pair for name, one in self.arguments.items() for pair in one.each(name)]
        return tuple([name for name, one in found if not one.certain])


ToolKind: TypeAlias = Literal["files", "fetches", "shell", "looks", "saves", "keeps", "unknown"]
"""The kind of a tool for presets.

`files`: it touches only the paths it is given. `fetches`: only the URLs. `shell`: it runs a shell
command. `looks`, `keeps`: it reads, or changes, the server's own data; only for shipped servers.
`saves`: it looks, and works on a file that it may be given. `unknown`: none of these is certain.
"""


class ReadTool(Struct, frozen=True, kw_only=True):
    """A tool with its arguments and its kind."""

    name: str
    kind: ToolKind
    arguments: Mapping[str, Json]
    """Roles by argument, as `tool-annotations.json` writes them."""
    schema: Mapping[str, Json] = msgspec.field(default_factory=dict)
    command: str | None = None
    """The argument that holds a shell command."""
    changes: bool = True
    """Whether the tool may do more than read."""
    why: str = ""
    """The reason for which the tool is `unknown` or denied, for people."""
    effect: str | None = None
    """The effect by its pack or its name, or None if neither says it, or the kind says it."""
    is_packed: bool = False
    """Whether a pack describes it."""
    is_denied: bool = False
    """Whether the tool is left out and so denied: any annotation would allow something unexamined.
    """


class ReadServer(Struct, frozen=True, kw_only=True):
    """A server's tools, and its name in policy and annotations."""

    name: str
    """The operator's name."""
    annotations: str
    tools: tuple[ReadTool, ...] = ()
    hosts: tuple[str, ...] = ()
    """The hosts that its sandbox kept it from, of a server that did not answer."""
    error: str = ""
    """The reason why the tools are not known, or empty if they are known."""
    left_out: int = 0
    """Tools that cannot be written into the files; they are denied."""


# --- words


WORDS: Final[Mapping[str, frozenset[str]]] = {
    key: words(text)
    for key, text in tomllib.loads(
        Path(__file__).with_name("words.toml").read_text("utf-8")
    ).items()
}
"""The words of `words.toml`, by key."""

READS: Final = WORDS["reads"]
WRITES: Final = WORDS["writes"]
DESTROYS: Final = WORDS["destroys"]
FETCHES: Final = WORDS["fetches"]
PATH_FORMATS: Final = WORDS["path_formats"]
URL_FORMATS: Final = WORDS["url_formats"]

_SAID: Final = tomllib.loads(Path(__file__).with_name("patterns.toml").read_text("utf-8"))
_PATTERNS: Final = {
    name: re.compile(re.sub(r"<(file|leading)>", lambda part: _SAID["parts"][part[1]], pattern))
    for name, pattern in _SAID["patterns"].items()
}
_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words_of(name: str) -> tuple[str, ...]:
    """Split an identifier: `readTextFile`, `read_text_file`, `read-file`. In lower case."""
    return tuple(word.lower() for word in _CAMEL.findall(name))


_CHANGES: Final = _PATTERNS["changes"]


def speaks_of_change(description: str) -> bool:
    """Return whether a description says that a tool does more than read, or may."""
    return _CHANGES.search(description) is not None


_DESTROYS: Final = _PATTERNS["destroys"]
_LEAVES: Final = _PATTERNS["leaves"]


def speaks_of_destroying(description: str) -> bool:
    """Return whether a description says that a tool deletes or moves something away."""
    return _DESTROYS.search(description) is not None


def speaks_of_leaving(description: str) -> bool:
    """Return whether a description says that a tool reaches or runs something other than files."""
    return _LEAVES.search(description) is not None


# --- shell tools


NO_TEXT: Final = frozenset({"boolean", "number", "integer", "null"})
"""The types of values that name nothing."""
_TYPES: Final = NO_TEXT | {"string", "array", "object"}
_MOST_DEPTH: Final = 8


def types_of(schema: Mapping[str, Json], depth: int = _MOST_DEPTH) -> frozenset[str]:
    """Return a value's JSON types: none if the schema names none, or nests too deeply."""
    if depth == 0:
        return frozenset()
    said = schema.get("type", [])
    names = said if isinstance(said, list) else [said]
    found = {one.lower() for one in names if isinstance(one, str)}
    if any(not isinstance(one, str) for one in names) or not found <= _TYPES:
        # The check of calls leaves such a type out, so that any value fits.
        return frozenset()
    for word in ("anyOf", "oneOf"):
        for one in list_of(schema.get(word)):
            types = types_of(one, depth - 1) if isinstance(one, Mapping) else frozenset()
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)


def is_closed_choice(schema: Mapping[str, Json]) -> bool:
    """Return whether a value is one of a list of the schema."""
    choice = schema.get("enum")
    return "const" in schema or (isinstance(choice, list) and bool(choice))


COMMAND_ARGUMENTS: Final = WORDS["shell_commands"]
"""Names of arguments that hold a shell command, without their capitals and underscores."""
_SAYS_RUN: Final = _PATTERNS["says_run"]
_COMMAND: Final = _PATTERNS["command"]
_SHELL: Final = _PATTERNS["shell"]
_ELSEWHERE: Final = _PATTERNS["elsewhere"]
"""Words for machines other than the local one. A program named only as an example does not count.
"""
_OTHERS: Final = WORDS["interpreters"]


class RunArgument(Struct, frozen=True):
    """The argument whose text a tool runs."""

    argument: str
    is_shell: bool
    """Whether the text is a command of the local shell."""


def runs(tool: Mapping[str, Json], properties: Mapping[str, Json]) -> RunArgument | None:
    """Return the argument whose text a tool runs, or None if no argument seems to hold one.

    Args:
        tool: its object of `tools/list`.
        properties: of its input schema.
    """
    name = str(tool.get("name", ""))
    about = " ".join(
        [*words_of(name), str(tool.get("title", "")), str(tool.get("description", ""))]
    )
    for argument, schema in properties.items():
        plain = "".join(words_of(argument))
        if plain not in COMMAND_ARGUMENTS | WORDS["run_texts"] or not isinstance(schema, Mapping):
            continue
        types = types_of(schema)
        if not types or not types <= {"string", "array", "null"}:
            continue
        text = f"{about} {schema.get('description', '')}"
        says_so = bool(
            _SAYS_RUN.search(text) and (_COMMAND.search(text) or plain in COMMAND_ARGUMENTS)
        )
        if not says_so and not (plain in COMMAND_ARGUMENTS and _SHELL.search(text)):
            continue
        return RunArgument(argument, _is_shell(name, text, certain=plain in COMMAND_ARGUMENTS))
    return None


def _is_shell(name: str, text: str, *, certain: bool) -> bool:
    if _ELSEWHERE.search(text) or not _OTHERS.isdisjoint(words_of(name)):
        return False
    if _SHELL.search(text):
        return True
    return certain and _OTHERS.isdisjoint(re.findall(r"[a-z0-9]+", text.lower()))


# --- texts


_PATHS: Final = WORDS["paths"]
_COMMANDS: Final = WORDS["commands"]
_ENDS: Final = WORDS["ends"]
_TEXTS: Final = WORDS["texts"]
_QUERIES: Final = WORDS["queries"]

"""The words that may stand before the first noun of a description. Each step takes a word or a
single character, so that no description makes the search long.
"""
_PATH_SUBJECT: Final = _PATTERNS["path_subject"]
_PATH_WORDS: Final = _PATTERNS["path_words"]
_URL_SUBJECT: Final = _PATTERNS["url_subject"]
_URL_WORDS: Final = _PATTERNS["url_words"]
_SQL_WORDS: Final = _PATTERNS["sql_words"]
_OTHER_QUERIES: Final = _PATTERNS["other_queries"]
_RUNS: Final = _PATTERNS["runs"]
_ADDRESS: Final = _PATTERNS["address"]
_PLACE: Final = _PATTERNS["place"]
_MENTIONED: Final = _PATTERNS["mentioned"]

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
    found = _raised(said, name, text, schema, about)
    if found.roles == about.paths and _OF_THE_SERVER.search(text):
        return Proposed(roles=_UNCLEAR, certain=False, why="a name in a place of its server")
    if found.roles == about.paths and "write-path" not in found.roles and _IS_WRITTEN.search(text):
        # `get_page(filename)` that saves the page there: the tool's name says that it reads.
        roles: Roles = ("read-path", "write-path", *found.roles[1:])
        return replace(found, roles=roles, why="its description says that it is written")
    return found


_LINES: Final = frozenset({"sh", "bash", "shell", "exec", "execute", "run", "terminal"})


_NAMING: Final = frozenset({"read", "get", "open", "show", "trash", "delete", "remove", "rename"})
"""Verbs of tools that take the name of a note, not its text."""


def _in_doubt(name: str, about: ArgumentContext) -> Proposed | None:
    """Propose for a name without a description that is an option in other tools only."""
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


_PATH_OR_URL: Final = _PATTERNS["path_or_url"]
_CALM: Final = frozenset({"none", "message", "identifier", "email-address"})
_IS_WRITTEN: Final = _PATTERNS["is_written"]
"""Said of a path: the tool makes a file there."""
_OF_THE_SERVER: Final = _PATTERNS["of_the_server"]
"""A name in a place that only the server knows. As a path it would be sent absolute."""


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
