"""The effects of SQL statements on a database and its machine."""

from typing import Final, Literal, TypeAlias

SqlEffect: TypeAlias = Literal["reads", "writes", "destroys", "runs"]
"""The effect of a text of SQL statements, gravest last: it only reads; it changes or adds; it
deletes; it reaches beyond the database (files, programs, other hosts), or cannot be read."""

SQL_EFFECTS: Final[tuple[SqlEffect, ...]] = ("reads", "writes", "destroys", "runs")
"""The effects from harmless to grave."""


def is_at_most(effect: SqlEffect, bound: SqlEffect) -> bool:
    """Whether an effect is no graver than another."""
    return SQL_EFFECTS.index(effect) <= SQL_EFFECTS.index(bound)


def gravest(*effects: SqlEffect) -> SqlEffect:
    """The gravest effect; of none: it only reads."""
    return max(effects, key=SQL_EFFECTS.index, default="reads")
