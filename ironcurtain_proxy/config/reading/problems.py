"""Problems in the operator's files: place, description, and the nearest known word.

Values are never shown, except words of a fixed vocabulary: a configuration holds secrets, and
these lines are printed.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError

Severity: TypeAlias = Literal["error", "warning"]
"""An error prevents the start; a warning is printed."""

PathPart: TypeAlias = str | int
"""A key or an index of a place in a document."""

_SHOWN_CHARACTERS = 80


class Problem(Struct, frozen=True):
    """One mistake in a file or variable."""

    source: str
    """The file, or the environment variable."""
    json_path: str
    """A path such as `$.rules[3].then`; empty: the source as a whole."""
    message: str
    suggestion: str = ""
    """The nearest known word, or empty if none is near."""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.source}: {self.json_path}" if self.json_path else self.source
        hint = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{place}: {self.message}{hint}"


class ProblemsError(ConfigurationError):
    """Operator's files that cannot be used. Its text is one line; `problems` has all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        text = str(errors[0]) if errors else "the configuration cannot be used"
        if len(errors) > 1:
            text += f" (and {len(errors) - 1} more: `ironcurtain-proxy check` shows all)"
        super().__init__(text)


class Report:
    """Collects the problems of one load, so that all are shown at once."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order in which they were found."""
        return tuple(self._problems)

    @property
    def has_errors(self) -> bool:
        """Whether any problem prevents the start."""
        return any(problem.severity == "error" for problem in self._problems)

    def error(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a problem that prevents the start."""
        self.extend([Problem(str(source), json_path(path), message, suggestion)])

    def warning(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a warning."""
        where = json_path(path)
        self.extend([Problem(str(source), where, message, suggestion, "warning")])

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add the problems of another report. What two checks find is one problem."""
        self._problems.extend([one for one in problems if one not in self._problems])

    def raise_errors(self) -> None:
        """Raise if any problem is an error.

        Raises:
            ProblemsError: with everything found, warnings too.
        """
        if self.has_errors:
            raise ProblemsError(self._problems)


class MarkedReport(Report):
    """Adds to another report, with line and column of each marked place."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report
        self._marks: dict[tuple[PathPart, ...], str] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems of the report that this one adds to."""
        return self._report.problems

    @property
    def has_errors(self) -> bool:
        """Whether any of them prevents the start."""
        return self._report.has_errors

    def mark(self, path: Sequence[PathPart], line: int, column: int) -> None:
        """Note where a place of the document stands."""
        self._marks[tuple(path)] = f"line {line}, column {column}: "

    def marked(self, path: Sequence[PathPart]) -> str:
        """Line and column of a place, or of the nearest place around it; empty: not known."""
        for length in range(len(path), -1, -1):
            if (found := self._marks.get(tuple(path[:length]))) is not None:
                return found
        return ""

    def error(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a problem that prevents the start."""
        self._report.error(source, path, self.marked(path) + message, suggestion)

    def warning(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a warning."""
        self._report.warning(source, path, self.marked(path) + message, suggestion)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add the problems of another report."""
        self._report.extend(problems)


def json_path(parts: Sequence[PathPart]) -> str:
    """Write a place as JSONPath: `("rules", 0, "if")` is `$.rules[0].if`, `()` is empty."""
    if not parts:
        return ""
    steps = [f"[{part}]" if isinstance(part, int) else _key_step(part) for part in parts]
    return "$" + "".join(steps)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most likely meant, or empty if none is near."""
    # Slow to import, and most loads find nothing wrong.
    from ironcurtain_proxy.config.reading.suggestions import nearest_word  # noqa: PLC0415

    return nearest_word(word, known)


def shown(word: str) -> str:
    """Return a word from a file, quoted, cut, and without control characters.

    It goes to a terminal.
    """
    cut = word if len(word) <= _SHOWN_CHARACTERS else word[:_SHOWN_CHARACTERS] + "..."
    return '"' + "".join([c if c.isprintable() else "?" for c in cut]) + '"'


def _key_step(key: str) -> str:
    return f".{key}" if key.replace("-", "_").isidentifier() else f"[{shown(key)}]"
