"""Files of a directory are told of as they come."""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.private_directory import watch_directory

pytestmark = pytest.mark.anyio


async def names_after(change: Callable[[], object], directory: Path) -> set[str]:
    """What is told between a change and the next silence."""
    found: set[str] = set()
    async with aclosing(watch_directory(directory, anyio.Event())) as told:
        async for names in told:
            if not names:
                # Watched by now.
                if found:
                    return found
                change()
            found |= names
    raise AssertionError


async def test_a_file_that_is_renamed_into_place_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "new").touch()
    found = await names_after(
        lambda: (tmp_path / "new").rename(tmp_path / "box" / "answer"), tmp_path / "box"
    )
    assert found == {"answer"}


async def test_a_file_that_is_written_where_it_lies_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "answer").touch()
    assert await names_after(lambda: (tmp_path / "answer").write_text("x"), tmp_path) == {"answer"}


async def test_a_watch_ends_when_it_is_stopped(tmp_path: Path) -> None:
    stop = anyio.Event()
    async with aclosing(watch_directory(tmp_path, stop)) as told:
        stop.set()
        assert [names async for names in told] == []
