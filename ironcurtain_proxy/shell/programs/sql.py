"""Database clients: whether they only read. Pure: no I/O, no clock, no log.

A statement is taken for a reading one by its first word and by the functions that it calls: all
must be known.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.rules import Options, options

_FIRST: Final = re.compile(r"\s*(?:select|show|describe|desc|explain|values)\b", re.IGNORECASE)
_REFUSED: Final = re.compile(
    r"[\\`]|://|^\s*\.|\b(?:into|outfile|dumpfile|insert|update|delete|drop|create|alter|truncate"
    r"|grant|revoke|copy|load|attach|detach|pragma|call|exec|execute|do|lock|merge|replace|vacuum"
    r"|analyze|analyse|export|import|install|set|reset|handler|share|procedure|unload|refresh)\b"
    r"|/\*|--|#",
    re.IGNORECASE | re.MULTILINE,
)
_CALLS: Final = re.compile(r"([^\s(),;=<>+*/%|&-]+)\s*\(")
_HARMLESS: Final = frozenset(
    [
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "lower",
        "upper",
        "length",
        "substr",
        "substring",
        "trim",
        "ltrim",
        "rtrim",
        "coalesce",
        "nullif",
        "abs",
        "round",
        "floor",
        "ceil",
        "ceiling",
        "cast",
        "date",
        "time",
        "datetime",
        "strftime",
        "julianday",
        "year",
        "month",
        "day",
        "hour",
        "now",
        "current_date",
        "current_timestamp",
        "typeof",
        "ifnull",
        "concat",
        "group_concat",
        "string_agg",
        "array_agg",
        "row_number",
        "rank",
        "dense_rank",
        "over",
        "partition",
        "in",
        "and",
        "or",
        "not",
        "exists",
        "any",
        "all",
        "as",
        "on",
        "using",
        "from",
        "where",
        "join",
        "select",
        "values",
        "union",
        "except",
        "intersect",
        "limit",
        "having",
        "by",
        "when",
        "then",
        "else",
        "case",
        "between",
        "like",
        "distinct",
        "filter",
        "varchar",
        "char",
        "decimal",
        "numeric",
        "int",
        "integer",
        "json_extract",
        "date_trunc",
        "extract",
        "version",
        "database",
        "schema",
        "user",
        "current_user",
        "pg_size_pretty",
        "pg_database_size",
        "pg_total_relation_size",
        "pg_relation_size",
        "total",
        "changes",
    ]
)


def reads_only(statement: str) -> bool:
    """Whether one statement, perhaps with a `;` at its end, only reads."""
    text = statement.strip().removesuffix(";")
    if ";" in text or not _FIRST.match(text) or _REFUSED.search(text):
        return False
    return all(name.lower() in _HARMLESS for name in _CALLS.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Which options of a client hold statements, and which others may be given."""

    statements: Options = frozenset()
    flags: Options = frozenset()
    values: Options = frozenset()
    enough: Options = frozenset()
    """Options with which, alone, it does nothing else."""
    hosts: Options = frozenset()
    """Options that name a machine: this one only."""
    operands_before: int = 99
    """So many operands are names, the rest are statements."""

    def check(self, words: Sequence[Word]) -> str | None:
        """Why the words do more than read, or None."""
        if len(words) == 1 and words[0].text in self.enough:
            return None
        found: list[Word] = []
        operands: list[Word] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            name, value = _split(word.text or "")
            if name in self.statements | self.values | self.hosts and value is None:
                value = (rest or [Word(None)]).pop(0)
            if name in self.hosts and (value is None or value.text not in _HERE):
                return "it connects to another machine"
            if value is not None and name in self.statements:
                found.append(value)
            elif not word.prefix.startswith("-"):
                operands.append(word)
            elif value is None and word.text not in self.flags:
                return "an option is not known"
        return _statements(found, operands, self.operands_before)


def _split(text: str) -> tuple[str, Word | None]:
    """`--name=value`; None if the value is the next word."""
    name, equals, value = text.partition("=")
    return (name, Word(value)) if equals and text.startswith("--") else (text, None)


_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _statements(given: Sequence[Word], operands: Sequence[Word], before: int) -> str | None:
    if any(word.text is None for word in operands):
        return "an argument is not known"
    found = [*given, *operands[before:]]
    if not found:
        return "it takes statements from its input"
    if all(word.text is not None and reads_only(word.text) for word in found):
        return None
    return "a statement is not known to only read"


_LOOKS: Final = options(
    "-readonly -safe -json -csv -table -header -noheader -box -line -list -column -markdown"
    " -html -quote -ascii -batch -bail"
)
"""How a client of a file shows what it reads: SQLite's, and DuckDB's after it."""
_ABOUT: Final = options("-help -version --help --version")

SQLITE: Final = Client(
    flags=_LOOKS | options("-tabs -echo -stats"),
    values=options("-separator -nullvalue -newline -maxsize"),
    enough=_ABOUT,
    operands_before=1,
)
DUCKDB: Final = Client(
    statements=options("-c -s"),
    flags=_LOOKS,
    values=options("-separator -nullvalue -newline"),
    enough=_ABOUT,
    operands_before=1,
)
SQLCMD: Final = Client(
    statements=options("-q -Q --query --text"),
    values=options("-d --database"),
    operands_before=0,
)
PSQL: Final = Client(
    statements=options("-c --command"),
    flags=options("-A -H -x -t -q -X -w -1 --no-align --html --expanded --tuples-only --csv"),
    values=options("-d --dbname -U --username -p --port -F -R"),
    enough=options("--help --version -V -? -l --list"),
    hosts=options("-h --host"),
)
MYSQL: Final = Client(
    statements=options("-e --execute"),
    flags=options("-H --html -X --xml -t --table -B --batch -s --silent -N -E --vertical -r"),
    values=options("-D --database -u --user -P --port"),
    enough=options("--help --version -V"),
    hosts=options("-h --host"),
)
