"""Small values of which the other nouns are made.

There are JSON values; vocabularies written as text, because a list of a hundred words reads better
without quotes; a moment counted since the machine booted, which no change of the wall clock moves;
the effects of SQL; paths with all links resolved; regular expressions that are compiled when they
are first used; and names of files that steer a client, Mercurial or the proxy in any directory.
Programs that such files name run outside every sandbox, with all rights of the user; or they let a
client run programs without a question.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import AnyStr, ClassVar, Final, Generic, Literal, TypeAlias, cast
from urllib.parse import quote

from msgspec import Struct

# --- json


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Any JSON value, as `json.loads` returns it."""

Arguments: TypeAlias = Mapping[str, Json]
"""The arguments of a tool call. Treated as read-only; untrusted until facts are gathered."""


def object_of(value: object) -> dict[str, Json]:
    """Return an object, or an empty one for every other value."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Json]:
    """Return a list, or an empty one for every other value."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a text, or an empty one for every other value."""
    return value if isinstance(value, str) else ""


# --- vocabulary


def words(text: str) -> frozenset[str]:
    """Return a set of words from a text with blanks between them."""
    return frozenset(text.split())


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a text with blanks between them, in its order."""
    return tuple(text.split())


# --- fields that do not count


class WithSecrets(Struct, frozen=True):
    """A value whose `repr`, which may stand in a traceback or a log, leaves some fields out."""

    hidden: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = [name for name in self.__struct_fields__ if name not in self.hidden]
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
        return f"{type(self).__name__}({fields})"


class WithNotes(Struct, frozen=True):
    """A value that is equal to another whatever some of its fields say."""

    notes: ClassVar[frozenset[str]] = frozenset()

    def _counting(self) -> tuple[object, ...]:
        names = self.__struct_fields__
        return tuple([getattr(self, name) for name in names if name not in self.notes])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WithNotes) or type(other) is not type(self):
            return NotImplemented
        return self._counting() == other._counting()

    def __hash__(self) -> int:
        return hash((type(self), self._counting()))


# --- boot moment


class BootMoment(Struct, frozen=True):
    """A moment within one boot of the machine."""

    boot: str
    seconds: float

    def as_json(self) -> dict[str, Json]:
        """Return the moment as a JSON value for a file."""
        return {"boot": self.boot, "seconds": self.seconds}


def boot_moment(value: object) -> BootMoment | None:
    """Read a moment from a file's JSON value, or None if it holds no valid moment."""
    if not isinstance(value, dict) or value.keys() != {"boot", "seconds"}:
        return None
    boot, seconds = value["boot"], value["seconds"]
    if not isinstance(boot, str) or isinstance(seconds, bool):
        return None
    if not isinstance(seconds, int | float) or not abs(seconds) <= 1e10:  # noqa: PLR2004  300 years
        return None
    return BootMoment(boot, float(seconds))


# --- sql


SqlEffect: TypeAlias = Literal["reads", "writes", "destroys", "runs"]
"""The effect of a text of SQL statements, gravest last: it only reads; it changes or adds; it
deletes; it reaches beyond the database (files, programs, other hosts), or cannot be read."""

SQL_EFFECTS: Final[tuple[SqlEffect, ...]] = ("reads", "writes", "destroys", "runs")
"""The effects from harmless to grave."""


def is_at_most(effect: SqlEffect, bound: SqlEffect) -> bool:
    """Return whether an effect is no graver than another."""
    return SQL_EFFECTS.index(effect) <= SQL_EFFECTS.index(bound)


def gravest(*effects: SqlEffect) -> SqlEffect:
    """Return the gravest effect; of none: it only reads."""
    return max(effects, key=SQL_EFFECTS.index, default="reads")


# --- path


class RealPath(Struct, frozen=True, order=True):
    """An absolute path with every link followed, as a tuple of its components.

    `/srv/a.txt` is `("srv", "a.txt")`, `/` is `()`. Components are compared instead of text, so
    that `/ab` does not lie in `/a`, and everything lies in `/`.
    """

    parts: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> "RealPath":
        """Split an absolute path without links. Empty components are dropped."""
        return cls(tuple([part for part in text.split("/") if part]))

    def is_within(self, directory: "RealPath") -> bool:
        """Return whether this path is `directory` or lies below it."""
        return self.parts[: len(directory.parts)] == directory.parts

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)


def file_uri(path: str) -> str:
    """Return an absolute path as a `file:` URI; what a URI cannot hold is percent-encoded."""
    return "file://" + quote(path.encode("utf-8", "surrogateescape"))


# --- steering


STEERING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        ".amazonq": ("mcp.json", "default.json", "agents", "cli-agents"),
        ".augment": ("settings",),
        ".claude": ("settings", "hooks"),
        ".clinerules": ("hooks",),
        ".codex": ("config", "hooks", "rules", "agents"),
        ".continue": ("mcpservers", "config"),
        ".cursor": ("mcp.json", "hooks", "cli.json", "sandbox.json", "worktrees.json"),
        ".factory": ("mcp.json", "settings", "hooks"),
        ".gemini": ("settings", "extensions", "policies", "hooks", ".env"),
        ".github": ("hooks", "copilot/settings"),
        ".hg": ("hgrc", "sharedpath"),
        ".idea": ("startup", "watchertasks"),
        ".ironcurtain": ("policy", "compiled-policy", "dynamic-lists"),
        ".junie": ("mcp",),
        ".kiro": ("settings", "hooks", "agents"),
        ".opencode": ("opencode.json", "plugin", "tool", "package.json"),
        ".qwen": ("settings", "extensions", "hooks", ".env"),
        ".roo": ("mcp.json",),
        ".trae": ("mcp.json",),
        ".vscode": ("mcp.json", "settings", "tasks"),
        ".windsurf": ("hooks", "mcp"),
        ".zed": ("settings",),
    }
)
"""The beginnings of names of files and directories, by the directory that holds them."""
STEERING_FILES: Final = (
    ".aider.conf.yml",
    ".crush.json",
    ".mcp.json",
    "crush.json",
    "opencode.json",
    "opencode.jsonc",
)
"""Files that name programs for an agent's client to start."""


# --- patterns


class _Pattern(Generic[AnyStr]):
    """Stands for a pattern until its first use; each method is then an attribute of its own."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        found: object = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)
        return found


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what serves as the compiled pattern. A mistake in it shows at the first use.

    The modules of a start hold some 200 expressions, and compiling them took a tenth of its
    processor time. `re.compile` is right where the start itself needs one.
    """
    return cast("re.Pattern[AnyStr]", _Pattern(pattern, flags))
