"""Annotations that no longer fit, alone or compared with the live tools.

An argument or a tool without annotation is denied; `check` reports it before the agent meets it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ironcurtain_proxy.config.annotating.words import words_of
from ironcurtain_proxy.config.reading.document import DocumentPlace
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.model.annotation import Annotations, RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.input_schema import declared_arguments
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition


@dataclass(frozen=True, slots=True)
class LiveTools:
    """The tools that the running servers offer."""

    definitions: tuple[ToolDefinition, ...]
    """The tools, by the operator's server name."""
    answered: frozenset[str]
    """The servers that answered."""
    silent: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The hosts that the sandbox of a server kept it from."""
    """The reason why a server did not answer, as far as known."""
    prompts: Mapping[str, tuple[Mapping[str, Json], ...]] = field(default_factory=dict)
    """The prompts by server; a server that did not list them is missing."""
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The URIs of resources, and templates of URIs, by server."""


def lint_annotations(annotations: Annotations, source: object, report: Report) -> None:
    """Report arguments with a case wider than the default, which should be the widest."""
    places: Counter[str] = Counter()
    for (server, _), annotation in annotations.items():
        index = places[server]
        places[server] += 1
        for name, spec in annotation.arguments.items():
            extra = _beyond_default(spec)
            if extra:
                place: DocumentPlace = ("servers", server, "tools", index, "args", name)
                words = ", ".join(sorted(extra))
                report.warning(source, place, f"a case has roles that the default lacks: {words}")


def lint_servers(
    annotations: Annotations, servers: Iterable[ServerSpec], source: object, report: Report
) -> None:
    """Report servers without any annotated tool: no call of theirs is allowed."""
    known = {server for server, _ in annotations}
    for spec in servers:
        if spec.annotations not in known:
            message = (
                f"server {shown(spec.name)} has no annotated tool: every call is denied, or asked "
                f"about (unknownTools). Run `ironcurtain-proxy annotate {spec.name}`"
            )
            report.warning(source, (), message, nearest(spec.annotations, known))


def lint_live(
    annotations: Annotations, live: LiveTools, servers: Iterable[ServerSpec], report: Report
) -> None:
    """Compare the annotations with the tools that the servers offer now."""
    for spec in servers:
        if spec.name not in live.answered:
            why = live.silent.get(spec.name, "")
            words = f"did not answer: not compared{why and f' ({why})'}"
            # No reason means that the server is still starting: fetching a package takes time.
            say = report.error if why else report.warning
            say(f"server {shown(spec.name)}", (), words)
            continue
        tools = {tool.name: tool for tool in live.definitions if tool.server == spec.name}
        known = {tool: a for (owner, tool), a in annotations.items() if owner == spec.annotations}
        for tool, definition in tools.items():
            place = f"{spec.name}/{tool}"
            if tool in known:
                _compare(known[tool], definition.input_schema, place, report)
            else:
                message = (
                    "has no annotation: every call is denied, or asked about (unknownTools). Run "
                    f"`ironcurtain-proxy annotate {spec.name}`"
                )
                report.warning(place, (), message, nearest(tool, of_same_verb(tool, known)))
        for tool in known:
            if tool not in tools:
                place = f"{spec.name}/{tool}"
                report.warning(place, (), "is annotated, but the server does not offer it")


def of_same_verb(tool: str, known: Iterable[str]) -> list[str]:
    """Return the tools with the same first word: `write_query` misspelt is never `read_query`."""
    first = words_of(tool)[:1]
    return [other for other in known if words_of(other)[:1] == first]


def _compare(annotation: ToolAnnotation, schema: Json, place: str, report: Report) -> None:
    live = {} if schema is None else declared_arguments(schema).names
    for name in live:
        if name not in annotation.arguments:
            message = f"argument {shown(name)} is not annotated: calls that use it are denied"
            report.warning(place, (), message)
    for name in annotation.arguments:
        if name not in live:
            message = f"argument {shown(name)} is annotated, but the tool no longer has it"
            report.warning(place, (), message, nearest(name, live))
    same_names = live.keys() == annotation.arguments.keys()
    if annotation.input_schema and same_names and annotation.input_schema != schema:
        message = (
            "its input schema has changed since it was annotated: look at its roles again with "
            "`ironcurtain-proxy annotate`"
        )
        report.warning(place, (), message)


def _beyond_default(spec: RoleSpec) -> frozenset[str]:
    extra = {role for case in spec.cases for role in case.roles}
    return frozenset(extra - {*spec.default, "none"})
