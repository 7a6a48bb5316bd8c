"""What the engine approves below /tmp, and for files that hold credentials."""

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.interaction import (
    TEMPORARY,
    FilesFound,
    Interaction,
    Knowledge,
)
from ironcurtain_proxy.auto_confirm.engine.settings import ROWS
from ironcurtain_proxy.auto_confirm.reviewer import SessionFiles
from ironcurtain_proxy.credentials import names, places
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.request import PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.auto_confirm.engine import calls

TESTING = Knowledge(
    moment=calls.NOON, health="well", testing=True, queue_depth=99, safe_paths=calls.SAFE_PATHS
)


@pytest.fixture
def below_tmp(tmp_path: Path) -> Path:
    """A directory that stands for /tmp."""
    assert any(RealPath.from_text(str(tmp_path)).is_within(base) for base in TEMPORARY)
    return tmp_path


def _approves(interaction: Interaction) -> bool:
    return calls.decided(interaction, calls.ON, TESTING).approves


@pytest.mark.anyio
async def test_only_what_the_session_made_below_tmp_is_edited_unasked(
    below_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ironcurtain_proxy.auto_confirm.reviewer.TEMPORARY", (RealPath.from_text(str(below_tmp)),)
    )
    session, made = SessionFiles(), below_tmp / "report.txt"
    request = calls.edit(str(made)).request
    first = await session.found(request)
    assert first.own == {RealPath.from_text(str(made))}
    session.approved(EscalationId("1"), first)
    made.write_text("mine")
    session.ended(EscalationId("1"), succeeded=True)
    assert (await session.found(request)).own

    other = SessionFiles()
    assert not (await other.found(request)).own, "another session's"
    os.link(made, below_tmp / "second")
    assert not (await session.found(request)).own, "a second name"


@pytest.mark.anyio
async def test_a_failed_call_makes_nothing_the_session_s_own(
    below_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ironcurtain_proxy.auto_confirm.reviewer.TEMPORARY", (RealPath.from_text(str(below_tmp)),)
    )
    session, place = SessionFiles(), below_tmp / "dump.sql"
    request = calls.edit(str(place)).request
    session.approved(EscalationId("1"), await session.found(request))
    session.ended(EscalationId("1"), succeeded=False)
    place.write_text("of a database")
    assert not (await session.found(request)).own


@pytest.mark.anyio
async def test_neither_a_socket_nor_a_directory_nor_a_link_is_a_file(below_tmp: Path) -> None:
    end = socket.socket(socket.AF_UNIX)
    end.bind(str(below_tmp / "s"))
    end.close()
    (below_tmp / "file").write_text("x")
    (below_tmp / "link").symlink_to(below_tmp / "file")
    request = calls.read(*[str(below_tmp / name) for name in ("s", "link", "file", ".")]).request
    found = await SessionFiles().found(request)
    assert found.files == {RealPath.from_text(str(below_tmp / "file"))}
    assert not found.own


@pytest.mark.parametrize(
    "path",
    ["/tmp/tmux-0/default", "/tmp/.X11-unix/X0", "/tmp/ssh-abc/agent.1", "/tmp/other/notes",
     "/tmp", "/home/other/mail.txt", "/home", "/tmp/krb5cc_0", "/tmp/core.1234", "/tmp/dump.sql"],
)  # fmt: skip
@pytest.mark.parametrize("make", [calls.read, calls.edit, calls.strange])
def test_what_others_keep_is_never_approved(path: str, make: object) -> None:
    assert callable(make)
    whole = replace(make(path), found=FilesFound(files=frozenset({RealPath.from_text(path)})))
    assert not _approves(whole)


@pytest.mark.parametrize("path", ["/home/ann", "/home/ann/Documents", "/home/ann/.config/x"])
def test_a_directory_of_the_home_and_what_is_hidden_in_it_are_not_public(path: str) -> None:
    files = frozenset({RealPath.from_text(path)}) if "/." in path else frozenset()
    decision = calls.decided(replace(calls.read(path), found=FilesFound(files=files)))
    assert "file_read_public" not in decision.rows


_SECRETS = [one.replace("*", "x") for one in names()]
_PLACES = [place.path for place in places()]


@pytest.mark.parametrize("make", [calls.read, calls.edit, calls.strange])
@pytest.mark.parametrize("directory", [str(calls.WORKSPACE), "/home/ann", "/home/ann/Documents"])
def test_no_file_with_credentials_is_read_or_written_without_a_person(
    make: object, directory: str
) -> None:
    assert callable(make)
    at_home = [f"/home/ann/{place}/x" for place in _PLACES]
    approved = [
        path
        for path in (*[f"{directory}/{name}" for name in _SECRETS], *at_home)
        if _approves(make(path))
    ]
    assert not approved


def test_a_link_with_the_name_of_a_secret_counts_as_one() -> None:
    found = calls.read("/srv/project/config/dev")
    (fact,) = found.request.arguments
    (value,) = fact.values
    assert isinstance(value, PathValue)
    linked = PathValue(value.text, value.path, RealPath.from_text("/srv/project/.env"))
    arguments = (type(fact)(fact.name, fact.roles, (linked,)),)
    request = type(found.request)(
        server="filesystem", tool="read_text_file", annotated=True, has_arguments=True,
        arguments=arguments,
    )  # fmt: skip
    assert _approves(found)
    assert not _approves(replace(found, request=request))


def test_every_row_says_what_takes_it_back() -> None:
    assert all(row.taken_back for row in ROWS.values())
    assert calls.decided(calls.edit("/srv/project/a")).as_json()["takenBack"]
