"""Arguments that name parts of a file: `{"path": …, "sheet": …, "range": …}`.

Beside a path, the name of a sheet, a cell or a page is a place in that file. Without a path it is a
thing of the server's own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.config.annotating.proposal import Proposed
from ironcurtain_proxy.config.annotating.propose import propose
from ironcurtain_proxy.config.annotating.words import words_of
from ironcurtain_proxy.model.json import Json

_PARTS: Final = frozenset(
    {"bookmark", "cell", "cells", "chapter", "chart", "column", "columns", "font", "footnote"}
    | {"heading", "page", "pages", "paragraph", "pivot", "row", "rows", "section", "sections"}
    | {"sheet", "sheets", "slide", "slides", "sparkline", "table", "tables", "worksheet"}
    | {"worksheets"}
)
"""Last words of arguments that name a part of a document."""
_TARGETS: Final = frozenset({"from", "into", "new", "old", "onto", "reference", "to", "upstream"})
"""Last words of arguments that may name another file, although they are often options."""


def parts_of(
    tool: Mapping[str, Json], unclear: Collection[str], paths: Sequence[Json]
) -> dict[str, Json] | None:
    """The roles of arguments that name parts of a file, or options; None: one may name more.

    Args:
        tool: its object of `tools/list`; another argument of it names the file.
        unclear: the arguments.
        paths: the roles of the tool's paths. Members that the schema does not list get these.
    """
    arguments = propose(tool).arguments
    leaves = [leaf for name in unclear for leaf in _leaves(name, arguments[name])]
    if not all(_is_in_file(name, one) for name, one in leaves):
        return None
    return {name: _written(arguments[name], paths) for name in unclear}


def _leaves(name: str, proposed: Proposed) -> Iterator[tuple[str, Proposed]]:
    yield name, replace(proposed, inside={})
    for member, one in proposed.inside.items():
        yield from _leaves(member, one)


def _is_in_file(name: str, proposed: Proposed) -> bool:
    words = [word for word in words_of(name) if word not in {"name", "names"}]
    last = words[-1] if words else ""
    if proposed.roles == ("none",):
        return last not in _TARGETS
    return proposed.roles == ("identifier",) and last in _PARTS


def _written(proposed: Proposed, paths: Sequence[Json]) -> Json:
    if not proposed.inside:
        return ["none"]
    inside = {name: _written(one, paths) for name, one in proposed.inside.items()}
    return {"default": [*paths], "inside": inside}
