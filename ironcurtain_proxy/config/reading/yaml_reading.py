"""YAML restricted to the data of JSON: text keys, no anchors, no tags.

A file of another program may have tags of plain values, and anchors that no alias names. Imported
only for files that end in `.yaml`. Anchors are refused: nested aliases make a few lines stand for
gigabytes. The loader written in Python is used because the C loader crashes the process on deep
nesting.
"""

from collections.abc import Mapping
from math import isfinite

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ironcurtain_proxy.config.reading.document import MarkedReport, PathPart, Report, shown
from ironcurtain_proxy.model.values import Json

_Place = tuple[PathPart, ...]


def parse_yaml(data: bytes, source: object, report: Report, *, is_own: bool = True) -> Json:
    """Return the parsed value of a YAML document.

    After an error, which is in the report, it is meaningless.

    Args:
        data: the text.
        source: the name of the file in errors.
        report: for the errors.
        is_own: whether the file is one of this program.
    """
    try:
        loader = _Loader(data.decode("utf-8"), is_own=is_own)
        root = loader.get_single_node()
        if root is not None:
            return _YamlReader(source, report, loader.refused).value(root, ())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        report.error(source, (), f"is not YAML: {_cause(error)}")
        return None
    report.error(source, (), "is empty")
    return None


class _Loader(yaml.SafeLoader):
    """Composes the nodes of a text, and notes those with an anchor or a tag."""

    def __init__(self, text: str, *, is_own: bool) -> None:
        super().__init__(text)
        self._is_own = is_own
        self.refused: dict[int, str] = {}
        """The faults of nodes, by the `id` of each."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent) or (self._is_own and event.anchor is not None):
            self.refused[id(node)] = "anchors and aliases are not supported"
        elif self._is_own and event.tag is not None:
            self.refused[id(node)] = "tags are not supported: remove it, or put a text in quotes"
        return node


class _YamlReader:
    """Converts the nodes of one document."""

    def __init__(self, source: object, report: Report, refused: Mapping[int, str]) -> None:
        self._source = source
        self._report = report
        self._refused = refused
        self._scalars = SafeConstructor()

    def value(self, node: Node, place: _Place) -> Json:
        self._mark(node, place)
        why = self._refused.get(id(node))
        if why is not None:
            self._report.error(self._source, place, why)
            return None
        match node:
            case MappingNode():
                return self._object(node, place)
            case SequenceNode():
                return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
            case _:
                return self._scalar(node, place)

    def _mark(self, node: Node, place: _Place) -> None:
        if isinstance(self._report, MarkedReport):
            self._report.mark(place, node.start_mark.line + 1, node.start_mark.column + 1)

    def _object(self, node: MappingNode, place: _Place) -> Json:
        found: dict[str, Json] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node, place) if isinstance(key_node, ScalarNode) else None
            why = self._refused.get(id(key_node))
            if why is not None or not isinstance(key, str):
                line = key_node.start_mark.line + 1
                why = why or "a key must be text: put it in quotes"
                self._report.error(self._source, place, f"line {line}: {why}")
                continue
            if key in found:
                self._mark(key_node, (*place, key))
                self._report.error(self._source, (*place, key), "the key occurs twice: remove one")
            found[key] = self.value(value_node, (*place, key))
        return found

    def _scalar(self, node: Node, place: _Place) -> Json:
        try:
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._report.error(self._source, place, f"cannot be read: {_cause(error)}")
            return None
        if isinstance(value, float) and not isfinite(value):
            self._report.error(self._source, place, "must be a finite number")
        if value is None or isinstance(value, str | bool | int | float):
            return value
        self._report.error(
            self._source,
            place,
            f"YAML reads this as {shown(type(value).__name__)}: put it in quotes",
        )
        return None


def _cause(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} at line {mark.line + 1}, column {mark.column + 1}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "syntax error"
