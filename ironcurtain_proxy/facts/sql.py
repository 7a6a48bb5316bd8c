"""The effect of a text of SQL statements: reads, writes, destroys, or reaches beyond the database.

Theory of operation. The database behind a server is unknown, and one text has different meanings
in different databases: a backslash before a quote keeps a string open for MySQL and not for
PostgreSQL, and `/*! … */` is a comment for all but MySQL. So a text is read in five dialects, and
its gravest reading counts. A dialect that cannot read the text is skipped, unless the text holds
something that dialects parse differently: then each of them must be able to read it.

A statement only reads if its first word, its kind, and everything inside it are known to only
read. An unknown function may write. A text that no dialect can read `runs`, the gravest effect.

This module cannot see what a view, an operator, or a function of the database's own with the name
of a common one does.

Functions that the SQL parser knows itself are listed only if they do more than read. An unlisted
name may write.
"""

import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.model.request import SqlValue
from ironcurtain_proxy.model.values import SqlEffect, gravest, words

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


# --- harmless


_WORDS: Final = {
    name: words(text)
    for name, text in tomllib.loads(Path(__file__).with_name("sql.toml").read_text("utf-8")).items()
}
_KNOWN: Final = ("writes", "destroys", "typed-runs", "roots")
READS_BY_PREFIX: Final = re.compile(
    r"(?:array|date|json|jsonb|list|map|regexp|st|string|struct|time)_[a-z0-9_]+|pg_get_[a-z]+def"
    r"|pg_get_(?:expr|keywords|userbyid|viewdef)|pragma_(?:table_info|table_xinfo|table_list"
    r"|index_list|index_info|foreign_key_list|database_list)"
)

PRAGMA: Final = re.compile(
    r"PRAGMA\s++(?:\w+\.)?(?:collation_list|compile_options|database_list|encoding|foreign_key_check"
    r"|foreign_key_list|freelist_count|function_list|index_info|index_list|index_xinfo"
    r"|integrity_check|module_list|page_count|page_size|quick_check|schema_version|table_info"
    r"|table_list|table_xinfo|user_version)\s*+(?:\(\s*+[\w.'\"`\[\]]*+\s*+\))?\s*+;?\s*+",
    re.IGNORECASE,
)
"""A pragma that only reads."""


# --- effects


_DIALECTS: Final = ("postgres", "mysql", "sqlite", "duckdb", "tsql")
_MOST: Final = 20_000
"""Characters. Five readings of a longer text would take seconds."""

_AMBIGUOUS: Final = re.compile(
    r"\\|\$\w*\$|#|--(?![ \t\r\n]|\Z)|\{[{%]|\bq'|/\*(?:(?!\*/).)*/\*"
    r"|\[[^\]'\";`-]*+['\";`-]|`[^`'\";\[-]*+['\";\[-]",
    re.DOTALL | re.IGNORECASE,
)
_HIDDEN: Final = re.compile(r"/\*M?!|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e]")
"""Text that a database runs and no parser shows: comments of MySQL, invisible characters."""
_COMMENT: Final = r"--[^\n]*+\n|/\*(?:(?!\*/).)*+\*/"
"""Possessive, here and above: what could end in two places has as many readings as 2 to the n."""
_FIRST: Final = re.compile(
    rf"(?:\s|{_COMMENT}|\()*+(SELECT|WITH|VALUES|FROM|TABLE|SHOW|DESCRIBE|DESC|EXPLAIN|PRAGMA)\b",
    re.DOTALL | re.IGNORECASE,
)
_EXPLAIN: Final = re.compile(
    r"\s*EXPLAIN\s+(?:(?:QUERY\s+PLAN|ANALYZE|VERBOSE|\([\w\s,]*\))\s+)*", re.IGNORECASE
)
_SHOW: Final = re.compile(r"\s*+SHOW\s[\w\s.'\"`%=]*+;?\s*+", re.IGNORECASE)


def sql_value(text: str) -> SqlValue:
    """Return a text with the effect of its statements."""
    effect, reason = effect_of(text)
    return SqlValue(text, effect, reason)


def effect_of(text: str) -> tuple[SqlEffect, str]:
    """Return the gravest effect of a text, and the reason for it (empty: it only reads)."""
    problem = _refused(text)
    if problem:
        return "runs", problem
    if PRAGMA.fullmatch(text):
        return "reads", ""
    bare = text
    while (found := _EXPLAIN.match(bare)) is not None and found.end() > 0:
        # EXPLAIN ANALYZE runs the statement, so the statement's effect is an upper bound.
        bare = bare[found.end() :]
    if _SHOW.fullmatch(bare):
        return "reads", ""
    must_agree = _AMBIGUOUS.search(bare) is not None
    readings = [_reading(bare, dialect) for dialect in _DIALECTS]
    known = [one for one in readings if one is not None]
    if not known or (must_agree and len(known) < len(readings)):
        return "runs", "it cannot be read with certainty"
    worst = gravest(*[effect for effect, _ in known])
    return worst, next(reason for effect, reason in known if effect == worst)


def _refused(text: str) -> str:
    """Return why a text is refused before it is parsed, or empty if it is parsed."""
    if len(text) > _MOST:
        return f"it is longer than {_MOST} characters"
    if _HIDDEN.search(text):
        return "it holds what one database runs and another takes for a comment"
    return "" if text.strip() else "it is empty"


def _reading(text: str, dialect: str) -> tuple[SqlEffect, str] | None:
    """Return the effect in one dialect, or None if it cannot be read."""
    # A tenth of a second to import, and only calls with SQL need it.
    import sqlglot  # noqa: PLC0415

    # Its warnings repeat the text, which is the agent's.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        statements = [one for one in sqlglot.parse(text, dialect=dialect) if one is not None]
        found = [one for statement in statements for one in _effects(statement)]
        if not statements or not _begins_well(text, len(statements)):
            found.append(("runs", "it does not begin as a statement that reads"))
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError, TypeError, AttributeError,
            KeyError, IndexError):  # fmt: skip
        return None
    worst = gravest(*[effect for effect, _ in found])
    reasons = [reason for effect, reason in found if effect == worst]
    return worst, reasons[0] if reasons else ""


def _begins_well(text: str, count: int) -> bool:
    """Return whether the first word is one of a statement that reads.

    Later statements are told by kind.

    `LISTEN x` is an expression to the parser.
    """
    return count > 0 and (_FIRST.match(text) is not None or _is_change(text))


def _is_change(text: str) -> bool:
    return re.match(
        rf"(?:\s|{_COMMENT})*+(?:INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|TRUNCATE|BEGIN|COMMIT"
        r"|ROLLBACK|REPLACE|START|SET|USE|PRAGMA|COMMENT)\b",
        text,
        re.DOTALL | re.IGNORECASE,
    ) is not None  # fmt: skip


def _effects(statement: "Expr") -> Iterator[tuple[SqlEffect, str]]:
    kind = type(statement).__name__
    if all(kind not in _WORDS[one] for one in _KNOWN):
        yield "runs", f"{kind} is no statement that is known"
    for node in statement.walk():
        yield from _of_node(node)


def _of_node(node: "Expr") -> Iterator[tuple[SqlEffect, str]]:
    name = type(node).__name__
    if name in _WORDS["typed-runs"]:
        yield "runs", f"{_words(name)} reaches beyond the database"
    elif name == "Create" and str(node.args.get("kind")).upper() not in _WORDS["plain-kinds"]:
        yield "runs", "it creates what may run programs"
    elif name in _WORDS["destroys"]:
        yield "destroys", f"{_words(name)} deletes"
    elif name in _WORDS["writes"]:
        yield "writes", f"{_words(name)} changes"
    elif name in {"Anonymous", "AnonymousAggFunc", "CombinedAggFunc", "CombinedParameterizedAgg"}:
        yield from _of_function(str(node.this))
    elif name == "Dot" and type(node.expression).__name__ != "Identifier":
        yield "writes", "a function of the database's own may write"
    elif name == "Table":
        yield from _of_table(node)


def _of_function(said: str) -> Iterator[tuple[SqlEffect, str]]:
    name = said.lower()
    if name in _WORDS["runs"]:
        yield "runs", f"{_words(said)} reaches beyond the database"
    elif name not in _WORDS["reads"] and not READS_BY_PREFIX.fullmatch(name):
        yield "writes", f"the function {_words(said)} is not known: it may write"


def _of_table(node: "Expr") -> Iterator[tuple[SqlEffect, str]]:
    # DuckDB opens a file or an address where a table of that name is not there.
    parts = [str(getattr(part, "name", "")) for part in (node.this, node.args.get("db"))]
    if any(mark in part for part in parts for mark in "/\\.:*?"):
        yield "runs", "a table with the name of a file may be a file"


def _words(name: str) -> str:
    return name[:60] if name.isidentifier() else "a part of it"
