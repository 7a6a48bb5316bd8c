"""The table of `audit tail`: one line a call, fitted to the terminal.

Columns are left out or made narrower before a line is wider than the terminal: a line that wraps
hides the left half of the list, where a reader looks first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ironcurtain_proxy.audit.display import COLOURS, PLAIN, LogEntry, columns, fit, printable

_GAP: Final = "  "
_LEAST_OUTCOME: Final = 9
_SHORT_TIME: Final = 8


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    value: Callable[[LogEntry], str]
    widths: tuple[int, ...]
    """A column, with its widths from the widest; a width of 0 leaves the column out."""
    keep: Literal["beginning", "last part", "end of a path"] = "beginning"
    """The part that is shown of a text that is too wide: servers' names and directories repeat in
    each line, the names of tools and files tell calls apart."""


_COLUMNS: Final = (
    _Column("NO", lambda entry: entry.number, (7, 6, 6, 5, 5)),
    _Column("TIME", lambda entry: entry.time, (19, 19, 8, 8, 8)),
    _Column("DECISION", lambda entry: entry.decision, (8, 8, 8, 8, 8)),
    _Column("BY", lambda entry: entry.by, (13, 13, 9, 6, 0)),
    _Column("SERVER/TOOL", lambda entry: entry.tool, (30, 26, 22, 16, 14), keep="last part"),
    _Column("RULE", lambda entry: entry.rule, (26, 0, 0, 0, 0)),
    _Column("ARGUMENT", lambda entry: entry.argument, (44, 30, 22, 16, 0), keep="end of a path"),
)
_LAYOUTS: Final = 5


@dataclass(frozen=True, slots=True)
class CallTable:
    """The layout of the lines."""

    width: int | None
    """The columns of the terminal; None: no limit, and each text stands whole."""
    when: Callable[[str], str]
    """A record's time as it is shown, 19 characters: `2026-11-21 13:00:00`."""
    zone: str = ""
    """The name of the zone of those times."""
    is_colourful: bool = False
    longest_number: int = 0
    """The width of the widest shown number: numbers are never cut."""

    def header(self) -> str:
        """The names of the columns."""
        cells: list[str] = []
        for column, width in self._shown():
            has_room = column.title == "TIME" and self.zone and width > _SHORT_TIME
            cells.append(fit(f"TIME ({self.zone})" if has_room else column.title, width))
        return self._bounded(_GAP.join([*cells, "OUTCOME"]))

    def row(self, entry: LogEntry) -> str:
        """One line for a call."""
        cells: list[str] = []
        for column, width in self._shown():
            text = column.value(entry)
            if column.title == "TIME":
                text = self.when(text)[-width:]
            cell = fit(_shortened(text, width, column.keep), width)
            if self.width is None:
                # In a pipe nothing is cut: the reader may be a program that looks for a rule.
                cell = max(cell, printable(text), key=columns)
            cells.append(cell)
        line = self._bounded(_GAP.join([*cells, printable(entry.outcome)]))
        return self._coloured(line, entry) if self.is_colourful else line

    def _shown(self) -> list[tuple[_Column, int]]:
        layout = self._layout()
        shown = [(one, one.widths[layout]) for one in _COLUMNS if one.widths[layout]]
        first, width = shown[0]
        return [(first, max(width, self.longest_number)), *shown[1:]]

    def _layout(self) -> int:
        if self.width is None:
            return 0
        for layout in range(_LAYOUTS):
            widths = [one.widths[layout] for one in _COLUMNS if one.widths[layout]]
            if sum(widths) + len(_GAP) * len(widths) + _LEAST_OUTCOME <= self.width:
                return layout
        return _LAYOUTS - 1

    def _bounded(self, line: str) -> str:
        line = line.rstrip()
        if self.width is None or columns(line) <= self.width:
            return line
        return fit(line, self.width).rstrip()

    def _coloured(self, line: str, entry: LogEntry) -> str:
        shades: Mapping[str, str] = COLOURS
        word, shade = f"{_GAP}{entry.decision}", shades.get(entry.decision, "")
        return line.replace(word, f"{_GAP}{shade}{entry.decision}{PLAIN}", 1) if shade else line


def _shortened(text: str, width: int, keep: str) -> str:
    """The part of a text that fits, if the text is too wide."""
    if keep == "beginning" or columns(printable(text)) <= width:
        return text
    if keep == "last part":
        return text.rpartition("/")[2]
    if not text.startswith(("/", "~/")):
        return text
    kept = text[1 - width :]
    # From a whole name on: a part of one would look like a name of its own.
    return f"…{kept[kept.find('/') :] if '/' in kept else kept}"
