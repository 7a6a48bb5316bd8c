"""The opening of a store: for the first time, again after a loss, or for inspection."""

import os
from dataclasses import dataclass
from pathlib import Path

from ironcurtain_proxy.auto_confirm.store.database import Database, open_database, sqlite_path
from ironcurtain_proxy.auto_confirm.store.schema import bring_up_to_date, is_there


@dataclass(frozen=True, slots=True)
class StoreOrigin:
    """The arguments of an opened store, to open it again."""

    url: str | None
    state_dir: Path
    deadline_seconds: float


def open_first(origin: StoreOrigin, *, create: bool) -> Database:
    """Open the database and bring its tables up to date.

    Raises:
        StoreError: it cannot be used; nothing in it was changed.
    """
    database = open_database(
        origin.url, origin.state_dir, create=create, deadline_seconds=origin.deadline_seconds
    )
    try:
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return database


def open_again(before: Database, origin: StoreOrigin) -> Database:
    """Open a database anew after `StoreLostError`; `before` is closed.

    A missing SQLite file is not made again: an empty store would lack what was learned or disabled.
    A damaged or replaced file is checked completely first. A new database of PostgreSQL gets its
    tables: its server vouches for it.

    Raises:
        StoreError: it cannot be used yet.
    """
    before.close()
    if before.file is not None:
        before.file.set_remains_aside()
    database = open_database(
        origin.url, origin.state_dir, in_use=True, deadline_seconds=origin.deadline_seconds
    )
    try:
        if before.doubtful:
            database.look_for_damage()
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return database


def inspect_store(url: str | None, state_dir: Path) -> bool:
    """Check whether a store can be used, without a change to it.

    Returns:
        Whether there is one: False where the engine's first session will make it.

    Raises:
        StoreError: it cannot be used.
    """
    path = sqlite_path(url, state_dir)
    if path is not None and not os.path.lexists(path):
        return False
    database = open_database(url, state_dir, create=False)
    try:
        database.look_for_damage()
        return is_there(database)
    finally:
        database.close()
