"""Arguments whose texts are read one by one: members of objects, and texts without a role.

A specification with `inside` gives each member of an object its own roles, however many lists lie
around it. A text of the role `unclear` is read as what it looks like: a path, a URL, or the paths
and URLs in what looks like a command. It is sent as it came, because it may be none of these; what
it looks like only adds reasons to deny. This module does not know how a path or a URL is read.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.model.annotation import Roles, RoleSpec
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.request import ArgumentFact, TextValue, Value

ReadText: TypeAlias = Callable[[str, Roles], tuple[tuple[Value, ...], str] | Refusal]
"""Reads a text by its roles. Returns its values, and the text to send."""

GUESSED_PATH: Final[Roles] = ("read-path", "write-path")
GUESSED_URL: Final[Roles] = ("fetch-url",)

_URL: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://\S", re.ASCII)
_LONGEST_PATH: Final = 4096
_LONGEST_COMMAND: Final = 10_000
_COMMAND_NAME: Final = re.compile(
    r"cmd|command|shell|bash|script|exec|argv|\bargs\b", re.IGNORECASE
)
_COMMAND: Final = re.compile(r"\s*[a-z./~][\w./~+-]*\s+\S")
_BREAKS: Final = re.compile(r"[\s\"'`;|&<>(){}=,]+")
_MOST_TEXTS: Final = 10_000


class DeepReading(Struct):
    """The values of one argument."""

    name: str
    read: ReadText
    _found: dict[Roles, dict[Value, None]] = field(default_factory=dict)
    _texts: int = 0

    def facts(self) -> tuple[ArgumentFact, ...]:
        """A fact for each set of roles."""
        found = self._found.items()
        return tuple([ArgumentFact(self.name, roles, tuple(values)) for roles, values in found])

    def take(self, value: Json, spec: RoleSpec, member: str = "") -> "Json | Refusal":
        """Read a value and everything inside it.

        Args:
            value: as the agent sent it.
            spec: its roles.
            member: the name under which it stands.

        Returns:
            The value to send in its place.
        """
        self._found.setdefault(spec.default, {})
        for inner in spec.inside.values():
            # The role of an omitted member counts, because the server may fill it in.
            for roles in _roles_in(inner):
                self._found.setdefault(roles, {})
        return self._take(value, spec, member or self.name)

    def _take(self, value: Json, spec: RoleSpec, member: str) -> "Json | Refusal":
        match value:
            case str():
                return self._text(value, spec.default, member)
            case list():
                items: list[Json] = []
                for item in value:
                    read = self._take(item, spec, member)
                    if isinstance(read, Refusal):
                        return read
                    items.append(read)
                return items
            case dict():
                return self._object(value, spec)
            case _:
                return value

    def _object(self, value: dict[str, Json], spec: RoleSpec) -> "Json | Refusal":
        members: dict[str, Json] = {}
        rest = RoleSpec(default=spec.default)
        for name, inner in value.items():
            read = self._take(inner, spec.inside.get(name, rest), name)
            if isinstance(read, Refusal):
                return read
            if name not in spec.inside and "unclear" in spec.default:
                said = self._text(name, spec.default, name)
                if isinstance(said, Refusal):
                    return said
            members[name] = read
        return members

    def _text(self, text: str, roles: Roles, member: str) -> str | Refusal:
        self._texts += 1
        if self._texts > _MOST_TEXTS:
            return Refusal("holds too many values")
        if "unclear" in roles:
            return self._unclear(text, roles, member)
        read = self.read(text, roles)
        if isinstance(read, Refusal):
            return read
        values, spelled = read
        self._found.setdefault(roles, {}).update(dict.fromkeys(values))
        return spelled

    def _unclear(self, text: str, roles: Roles, member: str) -> str | Refusal:
        self._found.setdefault(roles, {})[TextValue(text)] = None
        for look, part in looks_in(text, member):
            guessed = GUESSED_PATH if look == "path" else GUESSED_URL
            read = self.read(part, guessed)
            if isinstance(read, Refusal):
                if look == "url" and part == text:
                    # A URL that parsers read differently could hide a host.
                    return read
                continue
            self._found.setdefault(guessed, {}).update(dict.fromkeys(read[0]))
        return text


def looks_in(text: str, member: str) -> Iterator[tuple[Literal["path", "url"], str]]:
    """The paths and URLs that a text may be: itself, or those in a possible command."""
    if _URL.match(text):
        yield ("path" if text.lstrip().lower().startswith("file:") else "url"), text
        return
    if _is_path(text):
        yield "path", text
        return
    if len(text) > _LONGEST_COMMAND:
        return
    if _COMMAND_NAME.search(member) or _COMMAND.match(text):
        for part in _BREAKS.split(text):
            if _URL.match(part):
                yield "url", part
            elif part.startswith(("/", "~", "./", "../")) or "/../" in part:
                yield "path", part


def _is_path(text: str) -> bool:
    if not 0 < len(text) <= _LONGEST_PATH or "\n" in text:
        return False
    return text.startswith(("/", "~/", "./", "../", "~")) or (
        "/" in text and not re.search(r"\s", text)
    )


def _roles_in(spec: RoleSpec) -> Iterator[Roles]:
    yield spec.default
    for inner in spec.inside.values():
        yield from _roles_in(inner)
