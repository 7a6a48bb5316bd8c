"""What the operator says of a tool: its arguments, its effect, its capabilities.

An annotation is trusted, unlike a server's own hints (MCP `ToolAnnotations`). The operator's
further words about a tool can only add. A declaration of capabilities and danger describes and
never decides: it has no word about approval. Some capabilities a call needs because of its
arguments, besides those of its tool.

Servers declare arguments not only in `properties`: also through `$ref`, `allOf`, `anyOf` and their
siblings at the root. Annotation, `init`, `check` and the check of a call read an input schema here,
so that none of them overlooks an argument that another one sees. A schema is untrusted and may be
any JSON.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from math import isnan
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct, field

from ironcurtain_proxy.model.operation import TOOL_CALL, Method
from ironcurtain_proxy.model.values import Arguments, Json, list_of, object_of

ArgumentRole: TypeAlias = Literal[
    "read-path",
    "write-path",
    "delete-path",
    "write-history",
    "delete-history",
    "fetch-url",
    "git-remote-url",
    "github-owner",
    "github-repo",
    "proxy-domain",
    "resource-uri",
    "branch-name",
    "commit-message",
    "email-address",
    "email-body",
    "share-permission",
    "sql",
    "command",
    "message",
    "identifier",
    "unclear",
    "none",
]
"""The kind of thing that one argument names. A file with any other word is not loaded.

`sql`: statements for a database. `command`: a command of the local shell. `message`: a text that
other people will read. `identifier`: a thing of the server's own service, by name or number.
`unclear`: nobody could say; every text that looks like a path or a URL is read as one.
"""

Roles: TypeAlias = tuple[ArgumentRole, ...]
"""The roles of one argument; the first decides how its values are read."""

ToolEffect: TypeAlias = Literal["reads", "writes", "destroys", "sends", "runs"]
"""The gravest effect of a tool: it only reads; changes files; deletes; reaches another machine;
runs programs."""

RoleCategory: TypeAlias = Literal[
    "path", "url", "uri", "identifier", "sql", "command", "unclear", "opaque"
]
"""The way in which the values of a role are read. Values of an `opaque` role are not read at all; a
`uri` is read as a path or a URL where its scheme says so."""


class RoleTraits(Struct, frozen=True):
    """Properties that every argument of a role shares."""

    category: RoleCategory
    needs: frozenset[str] = frozenset()
    """The capabilities that an argument of the role needs."""
    contained: bool = False
    """A value inside the workspace needs no rule of its own (structural containment)."""


_EGRESS: Final = frozenset({"net.egress"})
_PERSONAL: Final = frozenset({"data.user", "net.egress"})

ROLE_TRAITS: Final[Mapping[ArgumentRole, RoleTraits]] = MappingProxyType(
    {
        "read-path": RoleTraits("path", frozenset({"fs.read"}), contained=True),
        "write-path": RoleTraits("path", frozenset({"fs.write"}), contained=True),
        "delete-path": RoleTraits("path", frozenset({"fs.delete"}), contained=True),
        "write-history": RoleTraits("path", frozenset({"fs.write"}), contained=True),
        "delete-history": RoleTraits("path", frozenset({"fs.delete"}), contained=True),
        "fetch-url": RoleTraits("url", _EGRESS),
        "git-remote-url": RoleTraits("url", _EGRESS),
        "github-owner": RoleTraits("identifier", _EGRESS),
        "github-repo": RoleTraits("identifier", _EGRESS),
        "proxy-domain": RoleTraits("identifier", _EGRESS),
        "resource-uri": RoleTraits("uri"),
        "branch-name": RoleTraits("opaque"),
        "commit-message": RoleTraits("opaque"),
        "email-address": RoleTraits("opaque", _PERSONAL),
        "email-body": RoleTraits("opaque", _PERSONAL),
        "share-permission": RoleTraits("opaque", _PERSONAL),
        "sql": RoleTraits("sql"),
        "command": RoleTraits("command", frozenset({"proc.exec"})),
        "message": RoleTraits("opaque", _PERSONAL),
        "identifier": RoleTraits("identifier"),
        "unclear": RoleTraits("unclear"),
        "none": RoleTraits("opaque"),
    }
)

CHANGES: Final[frozenset[ArgumentRole]] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)
"""Roles of paths whose content a call changes."""

RESOURCE_ROLES: Final[frozenset[ArgumentRole]] = frozenset(
    [role for role, traits in ROLE_TRAITS.items() if traits.category != "opaque"]
)
"""Roles whose values identify a resource, so that rules are asked about them."""

PATH_ROLES: Final = frozenset(one for one in RESOURCE_ROLES if ROLE_TRAITS[one].category == "path")
URL_ROLES: Final = frozenset(one for one in RESOURCE_ROLES if ROLE_TRAITS[one].category == "url")

IGNORES_CASE: Final[frozenset[ArgumentRole]] = frozenset(
    {"github-owner", "github-repo", "proxy-domain", "email-address"}
)
"""Roles whose service treats `Acme` and `acme` as the same name. Values of all other roles are
compared exactly, so that an allowlist never covers a name that differs in case."""
_KELVIN: Final = "\u212a"


def in_one_case(text: str) -> str:
    """Return a name in lower case, for a role that ignores case.

    The Kelvin sign stays: Python takes it for a `K`, and no mail server does, so that it would be
    another person who stands on a list. In a host it is a `K` before this is asked.
    """
    return text.lower() if text.isascii() else _KELVIN.join(map(str.lower, text.split(_KELVIN)))


GRAVEST_FIRST: Final[tuple[ArgumentRole, ...]] = (
    *("command", "sql", "unclear"),
    *("delete-path", "delete-history", "write-history", "write-path"),
    *("git-remote-url", "fetch-url", "github-owner", "github-repo", "proxy-domain", "identifier"),
    "resource-uri",
    *("share-permission", "email-address", "email-body", "message"),
    *("commit-message", "branch-name", "read-path", "none"),
)
"""All roles, gravest first: irreversible effects before reversible ones, effects outside this
machine before reads. Reasons for a question are listed to people in this order."""

Presence: TypeAlias = Literal["present", "absent", "truthy", "falsy"]
"""The words that an `is` condition takes. Null counts as absent. `""`, 0 and false are falsy; `[]`
and `{}` are truthy, as in JavaScript, for which the file format was first defined."""


class Equals(Struct, frozen=True, kw_only=True):
    """The argument is exactly this scalar; `True` is not 1."""

    argument: str
    value: Json

    def holds(self, arguments: Arguments) -> bool:
        """Return whether the condition holds for a call with these arguments."""
        return self.argument in arguments and same_scalar(arguments[self.argument], self.value)


class OneOf(Struct, frozen=True, kw_only=True):
    """The argument is exactly one of these scalars."""

    argument: str
    values: tuple[Json, ...]

    def holds(self, arguments: Arguments) -> bool:
        """Return whether the condition holds for a call with these arguments."""
        if self.argument not in arguments:
            return False
        given = arguments[self.argument]
        return any(same_scalar(given, value) for value in self.values)


class Is(Struct, frozen=True, kw_only=True):
    """The argument is present, absent, truthy or falsy."""

    argument: str
    presence: Presence

    def holds(self, arguments: Arguments) -> bool:
        """Return whether the condition holds for a call with these arguments."""
        value = arguments.get(self.argument)
        match self.presence:
            case "present":
                return value is not None
            case "absent":
                return value is None
            case "truthy":
                return is_truthy(value)
            case "falsy":
                return not is_truthy(value)
            case _:
                assert_never(self.presence)


RoleCondition: TypeAlias = Equals | OneOf | Is
"""The condition of a case of a role specification."""


def same_scalar(left: Json, right: Json) -> bool:
    """Strict equality of JSON scalars; arrays and objects equal nothing."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    are_numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if are_numbers or (isinstance(left, str) and isinstance(right, str)):
        return left == right
    return left is None and right is None


def is_truthy(value: Json) -> bool:
    """Truth as the annotation format defines it: containers are always true, NaN is false."""
    if isinstance(value, list | dict):
        return True
    return bool(value) and not (isinstance(value, float) and isnan(value))


class RoleCase(Struct, frozen=True, kw_only=True):
    """Roles that apply when the condition holds."""

    condition: RoleCondition
    roles: tuple[ArgumentRole, ...]


class RoleSpec(Struct, frozen=True, kw_only=True):
    """The roles of one argument: the first case that holds, else `default`."""

    default: tuple[ArgumentRole, ...]
    cases: tuple[RoleCase, ...] = ()
    inside: Mapping[str, "RoleSpec"] = field(default_factory=dict)
    """The roles of the members of an object, or of objects in a list, by name. Every other text in
    the argument has the roles above."""

    def every_role(self) -> frozenset[ArgumentRole]:
        """Return the roles over all cases and all members."""
        found = {*self.default, *[role for case in self.cases for role in case.roles]}
        return frozenset(found).union(*[spec.every_role() for spec in self.inside.values()])

    def roles(self, arguments: Arguments) -> tuple[ArgumentRole, ...]:
        """Return the roles the argument has in a call with these arguments."""
        for case in self.cases:
            if case.condition.holds(arguments):
                return case.roles
        return self.default


class ToolAnnotation(Struct, frozen=True, kw_only=True):
    """The operator's annotation of one tool: the roles of each argument, in file order."""

    server: str
    tool: str
    arguments: Mapping[str, RoleSpec]
    input_schema: Mapping[str, Json] = field(default_factory=dict)
    """The schema that the annotation was made from; empty if the file has none."""
    comment: str = ""
    effect: ToolEffect | None = None
    """The effect, or None if the annotation names no effect."""
    method: Method = TOOL_CALL
    """Another method: the annotation is of a prompt, or of a resource."""

    def roles(self, arguments: Arguments) -> tuple[tuple[str, tuple[ArgumentRole, ...]], ...]:
        """Return every annotated argument with the roles it has in this call, present or not."""
        return tuple([(name, spec.roles(arguments)) for name, spec in self.arguments.items()])

    def shared_with(self, other: "ToolAnnotation | None") -> frozenset[ArgumentRole]:
        """Return the roles of another tool that does the same kind of thing to files, or none.

        Both only read what they are told, or both change it. `move_file` also deletes, and
        `upload_file` sends: neither is like a tool that reads. A tool that also shows what it
        changes is not like one that does not.
        """
        if other is None or (other.effect, other.method) != (self.effect, TOOL_CALL):
            return frozenset()
        specs = [its.arguments.values() for its in (self, other)]
        own, others = [{role for spec in its for role in spec.every_role()} for its in specs]
        is_like = others - {"none"} <= own <= {"read-path", "write-path", "none"}
        both = is_like and ("write-path" in own) == ("write-path" in others)
        return frozenset(others - {"none"} if both else ())


ToolsAlike: TypeAlias = Mapping[str, tuple[str, frozenset[ArgumentRole]]]
"""Tools that do the same kind of thing to files as another one of their server, each with SHA-256
of its definition and the roles of its arguments."""

Annotations: TypeAlias = Mapping[tuple[str, str], ToolAnnotation]
"""Annotations by (server, tool), or of prompts by (server, prompt). What is missing here is not
annotated, and is denied."""


# --- input schema


_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_INNER: Final = ("then", "else")
_TABLES: Final = ("dependentSchemas", "dependencies")
_MOST_PARTS: Final = 1000
"""Subschemas of one root that are looked at: a hostile one may name itself for ever."""


class DeclaredArguments(Struct, frozen=True):
    """The arguments of a tool."""

    names: Mapping[str, Json]
    """The schema of each argument by name; one that several parts declare has all their forms."""
    is_open: bool
    """Whether others than these are taken."""
    is_list: bool
    """Whether the server means these to be all arguments; False: it describes them otherwise, by
    a pattern, or not at all."""


def declared_arguments(schema: Json, root: Json = None) -> DeclaredArguments:
    """Return the arguments that a schema declares, in all its parts.

    Args:
        schema: as a server sent it.
        root: the document around it; `None` means that it stands alone.
    """
    forms: dict[str, list[Json]] = {}
    has_table = is_lost = takes_others = has_pattern = False
    for part in _parts(schema, schema if root is None else root):
        if part is None:
            is_lost = True
            continue
        table = part.get("properties", False)
        # PHP writes an empty object as a list, and Go an empty map as null.
        has_table = has_table or isinstance(table, dict | list) or table is None
        for name, one in table.items() if isinstance(table, dict) else ():
            known = forms.setdefault(name, [])
            if one not in known:
                known.append(one)
        others = part.get("additionalProperties")
        takes_others = takes_others or others is True or isinstance(others, dict)
        has_pattern = has_pattern or bool(part.get("patternProperties"))
    closes = isinstance(schema, dict) and schema.get("additionalProperties") is False
    names: dict[str, Json] = {
        name: one[0] if len(one) == 1 else {"anyOf": one} for name, one in forms.items()
    }
    return DeclaredArguments(
        names=names,
        is_open=is_lost or has_pattern or takes_others or not (has_table or closes),
        is_list=not (is_lost or has_pattern or (takes_others and not names)),
    )


def resolved(root: Json, reference: str) -> Json:
    """Return what a reference names within its document, or None.

    References to other documents are not followed: the server could have them say anything.
    """
    if isinstance(root, dict):
        own = root.get("$id", root.get("id"))
        if isinstance(own, str) and own.partition("#")[0]:
            reference = reference.removeprefix(own.partition("#")[0])
    if not reference.startswith("#"):
        return None
    if reference[1:2] not in ("", "/"):
        return _anchored(root, reference[1:])
    node = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("%25", "%").replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def _anchored(root: Json, anchor: str) -> Json:
    """Return the definition of this name; draft 7 wrote it as `$id`."""
    for table in ("$defs", "definitions"):
        for one in object_of(object_of(root).get(table)).values():
            if isinstance(one, dict) and (
                anchor in (one.get("$anchor"), one.get("$dynamicAnchor"))
                or f"#{anchor}" in (one.get("$id"), one.get("id"))
            ):
                return one
    return None


def _parts(schema: Json, root: Json) -> Iterator[Mapping[str, Json] | None]:
    """Yield every subschema that speaks of the arguments themselves; None: one is not known."""
    followed: set[str] = set()
    waiting = [schema]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return
        part = waiting.pop(0)
        if not isinstance(part, dict):
            if part is None:
                yield None
            continue
        yield part
        reference = part.get("$ref", part.get("$dynamicRef", part.get("$recursiveRef")))
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            waiting.append(resolved(root, reference))
        for word in _BRANCHES:
            waiting += list_of(part.get(word))
        waiting += [part[word] for word in _INNER if word in part]
        for word in _TABLES:
            waiting += object_of(part.get(word)).values()
    yield None


# --- capability


Capability: TypeAlias = str
"""A name such as `fs.write`. Dotted suffixes (`fs.write.outside_base`) refine it. Any other name is
kept as written and belongs to no known capability."""

CAPABILITIES: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        "fs.read": "read files",
        "fs.write": "create or change files",
        "fs.delete": "delete files",
        "net.egress": "send data over the network",
        "proc.exec": "run programs",
        "data.user": "use personal data",
        "secrets.access": "use secrets",
    }
)
"""The known capabilities, each with its description for people."""

Isolation: TypeAlias = Literal["isolated", "unisolated", "unknown"]
"""Whether the agent's servers run in a disposable environment."""


class SafetyLevel(IntEnum):
    """The harm of a mistake with a tool. Any other number counts as dangerous."""

    SAFE = 1
    MODERATE = 2
    DANGEROUS = 3


def spoken_of(names: frozenset[str]) -> frozenset[str]:
    """Return the names under which a restriction may list a tool.

    A list that exempts tools needs certain names. A list that stops tools, or asks about them, also
    counts for the bare name while that is not certain: otherwise a server could remove the
    restriction by listing a tool of the same name, or by listing nothing.

    Args:
        names: those that are certain; `server/tool` is among them.
    """
    return names | {name.partition("/")[2] for name in names if "/" in name}


class ToolDeclaration(Struct, frozen=True, kw_only=True):
    """The operator's declaration of what a tool can do."""

    tool_id: str
    """`server/tool`; a bare name if one server has it."""
    capabilities: tuple[Capability, ...] = ()
    safety_level: SafetyLevel | None = None
    """The declared level, or None if it is computed from the argument roles."""
    command_argument: str | None = None
    """The argument that holds a shell command, or None if no argument does."""


# --- argument capability


ANY_VALUE: Final = "*"


class ArgumentCapabilities(Struct, frozen=True):
    """The capabilities that one argument of a tool adds, by the argument's value."""

    argument: str
    by_value: Mapping[str, tuple[Capability, ...]]
    """The capabilities by the value as text: `true`, `null`, `2`, or the text itself. `*` holds for
    every value of an argument that is given."""


def capabilities_by_argument(
    rules: Iterable[ArgumentCapabilities], arguments: Arguments
) -> frozenset[Capability]:
    """Return the capabilities that the arguments of a call add. Each item of a list counts."""
    found: set[Capability] = set()
    for rule in rules:
        if rule.argument in arguments:
            for word in (ANY_VALUE, *_words(arguments[rule.argument])):
                found.update(rule.by_value.get(word, ()))
    return frozenset(found)


def _words(value: Json) -> Iterator[str]:
    for item in value if isinstance(value, list) else (value,):
        word = _word(item)
        if word is not None:
            yield word


def _word(item: Json) -> str | None:
    """Return a scalar as it is spelled in the configuration; None for lists and objects."""
    if isinstance(item, str):
        return item
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        # 2 and 2.0 are the same number to a server.
        return str(int(item) if isinstance(item, float) and item.is_integer() else item)
    return "null" if item is None else None
