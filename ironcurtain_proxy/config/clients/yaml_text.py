"""YAML in block style, as Goose writes its configuration.

The parser says where each value stands; the lines of a member are replaced. ruamel.yaml 0.19 keeps
comments and quotes, but neither several blanks nor every indentation of a list.
"""

from collections.abc import Collection, Mapping, Sequence

import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode

from ironcurtain_proxy.config.clients.text_format import (
    Edit,
    NotUnderstoodError,
    TablePath,
    newline,
    spliced,
)
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.yaml_reading import parse_yaml
from ironcurtain_proxy.model.values import Json


class _Lines(Struct, frozen=True):
    """The lines of one member."""

    name: str
    start: int
    end: int
    indent: str


class YamlText:
    """The format of YAML."""

    def parse(self, text: str) -> Json:
        """Return the value. Anchors are refused, as in every YAML file that is read here."""
        report = Report()
        value = parse_yaml(text.encode("utf-8", "surrogatepass"), "", report, is_own=False)
        if report.has_errors:
            raise NotUnderstoodError(report.problems[0].message)
        return value

    def sources(self, text: str, place: TablePath) -> Mapping[str, str]:
        """Return the lines of each member."""
        return {one.name: text[one.start : one.end] for one in _members(text, place)}

    def written(self, text: str, place: TablePath, name: str, value: Mapping[str, Json]) -> str:
        """Return the lines of a new member, with the indentation of the table."""
        members = _members(text, place)
        indent = members[0].indent if members else "  "
        lines = yaml.safe_dump(
            {name: dict(value)}, sort_keys=False, allow_unicode=True, width=10_000
        ).splitlines()
        return "".join(f"{indent}{line}{newline(text)}" for line in lines)

    def replaced(
        self, text: str, place: TablePath, names: Collection[str], sources: Sequence[str]
    ) -> str:
        """Return the text after a replacement. Comments between members stay."""
        going = [one for one in _members(text, place) if one.name in names]
        if not going:
            raise NotUnderstoodError("has no such table")
        ended = [one if one.endswith("\n") else one + newline(text) for one in sources]
        edits: list[Edit] = [(going[0].start, going[0].end, "".join(ended))]
        edits += [(one.start, one.end, "") for one in going[1:]]
        return spliced(text, edits)


def _members(text: str, place: TablePath) -> list[_Lines]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise NotUnderstoodError("is not YAML") from None
    for key in place:
        node = _inner(node, key)
    if not isinstance(node, MappingNode) or node.flow_style:
        raise NotUnderstoodError("is not written with a line for each member")
    return [_lines(text, key, value) for key, value in node.value]


def _inner(node: Node | None, key: str) -> Node | None:
    pairs = node.value if isinstance(node, MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)


def _lines(text: str, key: Node, value: Node) -> _Lines:
    at = _index(key.start_mark)
    start = text.rfind("\n", 0, at) + 1
    if text[start:at].strip(" "):
        raise NotUnderstoodError("is not written with a line for each member")
    end = _end(value)
    if text[end - 1] != "\n":
        end = text.find("\n", end) + 1 or len(text)
    return _Lines(str(key.value), start, end, text[start:at])


def _end(node: Node) -> int:
    """The end of the last scalar of a value: a block node itself ends where the next one begins."""
    if isinstance(node, ScalarNode) or getattr(node, "flow_style", False) or not node.value:
        return _index(node.end_mark)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, MappingNode) else last)


def _index(mark: object) -> int:
    return int(getattr(mark, "index", 0))
