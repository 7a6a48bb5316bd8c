"""Databases of PostgreSQL that are emptied after a test and used for the next.

To make one and to remove it is a tenth of a second of a core; to empty it, a fifth of that. A
database that a test has left with another shape or a connection is not used again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import psycopg

Contents: TypeAlias = tuple[tuple[str, tuple[tuple[object, ...], ...]], ...]
"""The tables, each with its rows."""

_SHAPE: Final = """
SELECT 'column', relname, relkind::text, attname, format_type(atttypid, atttypmod), attnotnull
  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND NOT attisdropped
  WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'constraint', conname, '', pg_get_constraintdef(oid), '', convalidated
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', tgname, tgenabled::text, tgrelid::regclass::text, '', true
  FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'function', proname, '', prosrc, '', true
  FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'owner', relname, '', coalesce(relacl::text, ''), '', relrowsecurity
  FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'schema', nspname, '', coalesce(nspacl::text, ''), '', true FROM pg_namespace
  WHERE nspname !~ '^pg_'
UNION ALL SELECT 'setting', setconfig::text, '', '', '', true FROM pg_db_role_setting
UNION ALL SELECT 'connection', application_name, '', '', '', true FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()
ORDER BY 1, 2, 3, 4
"""
"""What the next test would notice, but for rows. None of it may have changed."""


_NUMBERS: Final = """
SELECT quote_ident(sequencename), coalesce(last_value, start_value), last_value IS NOT NULL
  FROM pg_sequences WHERE schemaname = 'public'
"""
"""Each sequence, its number, and whether that was given already."""


@dataclass(eq=False)
class UsedAgain:
    """Copies of one database; `url_of` gives the URL of one by its name."""

    template: str
    url_of: Callable[[str], str]
    make: Callable[[], str]
    remove: Callable[[str], None]
    free: list[str] = field(default_factory=list)
    _shape: list[tuple[object, ...]] = field(default_factory=list)
    _contents: Contents = ()
    _numbers: list[tuple[object, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with psycopg.connect(self.url_of(self.template)) as connection:
            self._shape = connection.execute(_SHAPE).fetchall()
            self._contents = _contents_of(connection)
            self._numbers = connection.execute(_NUMBERS).fetchall()

    @contextmanager
    def one(self) -> Iterator[str]:
        """The name of a database as the template is."""
        name = self.free.pop() if self.free else self.make()
        yield name
        if self._has_emptied(name):
            self.free.append(name)
        else:
            self.remove(name)

    def _has_emptied(self, name: str) -> bool:
        try:
            with psycopg.connect(self.url_of(name)) as connection:
                if connection.execute(_SHAPE).fetchall() != self._shape:
                    return False
                # TRUNCATE would make every table and index anew, and the next test wait for it.
                emptied = ", ".join(
                    f"gone_{number} AS (DELETE FROM {table})"  # noqa: S608  our own names
                    for number, (table, _) in enumerate(self._contents)
                )
                numbers = ", ".join(["setval(%s, %s, %s)"] * len(self._numbers))
                said = [value for number in self._numbers for value in number]
                connection.execute(f"WITH {emptied} SELECT {numbers}".encode(), said)
                for table, rows in self._contents:
                    for row in rows:
                        places = ", ".join(["%s"] * len(row))
                        insert = f"INSERT INTO {table} VALUES ({places})"  # noqa: S608  our own names
                        connection.execute(insert.encode(), row)
        except psycopg.Error:
            return False
        return True


def _contents_of(connection: "psycopg.Connection[tuple[object, ...]]") -> Contents:
    named = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    tables = [str(name) for (name,) in named]
    return tuple(
        (table, tuple(connection.execute(f"TABLE {table}".encode()).fetchall())) for table in tables
    )
