"""Draws the folders of the package: a row for each layer, an arrow for each import.

The layers are those that `pyproject.toml` has `lint-imports` hold. Of the arrows only those are
drawn that no longer way stands for: where `cli` imports `wiring` and `wiring` imports `model`, the
arrow from `cli` to `model` is left out. So are all arrows to `model` and `errors`, which every
folder imports.
"""

import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "pictures" / "folders.svg"
PACKAGE: Final = "ironcurtain_proxy"
EVERYONES: Final = frozenset({"model", "errors"})
"""What every folder imports: no arrow goes there."""

OFF: Final = frozenset({"auto_confirm", "auto_approver", "llm"})
"""Off by default: drawn with a broken line."""

WIDTH: Final = 1000
ROW: Final = 84
BOX: Final = 30
GAP: Final = 34
LETTER: Final = 8.2
TOP: Final = 20

CommandPlace = tuple[float, float, float]
"""The middle of a box, its top, and its width."""


def main(arguments: list[str]) -> int:
    """Draw, or with `--check` compare. Returns the exit code."""
    layers = list(_layers())
    drawn = _svg(layers, _arrows([name for layer in layers for name in layer]))
    if arguments == ["--check"]:
        if PICTURE.is_file() and PICTURE.read_text("utf-8") == drawn:
            return 0
        sys.stderr.write(f"pictures: {PICTURE.relative_to(ROOT)}: run scripts/pictures\n")
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn, "utf-8")
    return 0


def _layers() -> Iterator[list[str]]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contract = next(one for one in linter["contracts"] if one["id"] == "layers")
    for layer in contract["layers"]:
        names = [name.strip() for name in layer.split("|")]
        if names != ["__main__"]:
            yield names


def _arrows(names: list[str]) -> list[tuple[str, str]]:
    graph = grimp.build_graph(PACKAGE, include_external_packages=False)
    modules = {name: f"{PACKAGE}.{name}" for name in names}
    direct = {
        importer: {
            imported
            for imported in names
            if imported != importer
            and graph.direct_import_exists(
                importer=modules[importer], imported=modules[imported], as_packages=True
            )
        }
        for importer in names
    }
    # Names stand from the top layer down: what lies below is known before what lies above.
    reached: dict[str, set[str]] = {}
    for name in reversed(names):
        reached[name] = direct[name].union(*(reached.get(other, set()) for other in direct[name]))
    return sorted(
        (importer, imported)
        for importer, all_imported in direct.items()
        for imported in all_imported - EVERYONES
        if not any(imported in reached[other] for other in all_imported - {imported})
    )


def _svg(layers: list[list[str]], arrows: list[tuple[str, str]]) -> str:
    places = dict(_places(layers))
    height = TOP * 2 + ROW * (len(layers) - 1) + BOX
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">'
        ),
        "<title>The folders of ironcurtain_proxy, and which imports which</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5a6b7b"/></marker>'
            "</defs>"
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *(_arrow(places[importer], places[imported]) for importer, imported in arrows),
        *(_box(name, places[name]) for layer in layers for name in layer),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(layers: list[list[str]]) -> Iterator[tuple[str, CommandPlace]]:
    for row, layer in enumerate(layers):
        widths = [LETTER * len(name) + 2 * 12 for name in layer]
        # Rows of one box would have all arrows run through each other: they stand off the middle.
        shift = 0 if len(layer) > 1 else (-140, 140, 0)[row % 3]
        left = (WIDTH - sum(widths) - GAP * (len(layer) - 1)) / 2 + shift
        for name, width in zip(layer, widths, strict=True):
            yield name, (left + width / 2, TOP + ROW * row, width)
            left += width + GAP


def _box(name: str, place: CommandPlace) -> str:
    middle, top, width = place
    line = ' stroke-dasharray="5 4"' if name in OFF else ""
    fill = "#f4f1e6" if name in OFF else "#e6eef5"
    return (
        f'<rect x="{middle - width / 2:.1f}" y="{top}" width="{width:.1f}" height="{BOX}" rx="5" '
        f'fill="{fill}" stroke="#33475b"{line}/>'
        f'<text x="{middle:.1f}" y="{top + 20}" text-anchor="middle" '
        f'font-family="monospace" font-size="13" fill="#1b2733">{escape(name)}</text>'
    )


def _arrow(importer: CommandPlace, imported: CommandPlace) -> str:
    begin, end = (importer[0], importer[1] + BOX), (imported[0], imported[1] - 1)
    bend = (end[1] - begin[1]) / 2
    points = (begin, (begin[0], begin[1] + bend), (end[0], end[1] - bend), end)
    path = " ".join(f"{x:.1f} {y:.1f}" for x, y in points[1:])
    return (
        f'<path d="M{begin[0]:.1f} {begin[1]:.1f} C{path}" fill="none" stroke="#8a9aab" '
        'stroke-width="1.2" marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
