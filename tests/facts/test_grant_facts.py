"""Which paths of a call are directories, and which directories a server must be let into."""

import os
import threading
from pathlib import Path

import pytest

from ironcurtain_proxy.facts import resolver
from ironcurtain_proxy.facts.resolver import DirectoryFinder, directories_of, directories_to_open
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue, TextValue, Value
from ironcurtain_proxy.model.values import RealPath

NO_VALUES: tuple[Value, ...] = ()


def naming(*paths: Path, also: tuple[Value, ...] = NO_VALUES) -> AccessRequest:
    values = tuple(PathValue(str(path), RealPath.from_text(str(path))) for path in paths)
    return AccessRequest(
        server="filesystem",
        tool="read",
        annotated=True,
        has_arguments=True,
        arguments=(
            ArgumentFact("path", ("read-path",), values),
            ArgumentFact("name", ("github-owner",), also),
        ),
    )


def real(path: Path) -> RealPath:
    return RealPath.from_text(str(path))


def test_directories_are_told_from_files_and_from_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    request = naming(
        tmp_path, file, tmp_path / "missing", file / "below", also=(TextValue(str(tmp_path)),)
    )
    assert directories_of(request) == {real(tmp_path)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_what_may_not_be_looked_at_may_be_a_directory(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert directories_of(naming(closed / "x")) == {real(closed / "x")}


def test_a_name_that_cannot_be_looked_up_may_be_a_directory(tmp_path: Path) -> None:
    odd = tmp_path / "nul\0"
    long = tmp_path / ("x" * 300)
    assert directories_of(naming(odd, long)) == {real(odd), real(long)}


def test_a_server_is_let_into_the_directory_or_the_one_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    request = naming(file, tmp_path, tmp_path / "other", Path("/vmlinuz"))
    assert directories_to_open(request, directories_of(request)) == (str(tmp_path), "/")


@pytest.mark.anyio
async def test_the_finder_answers_as_the_disk_does(tmp_path: Path) -> None:
    assert await DirectoryFinder().find(naming(tmp_path)) == frozenset({real(tmp_path)})
    assert await DirectoryFinder().find(naming()) == frozenset()


@pytest.mark.anyio
async def test_a_disk_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    ends = threading.Event()

    def hang(_request: AccessRequest) -> frozenset[RealPath]:
        ends.wait()
        return frozenset()

    monkeypatch.setattr(resolver, "directories_of", hang)
    assert await DirectoryFinder(deadline=0.01).find(naming(tmp_path)) is None
    ends.set()
