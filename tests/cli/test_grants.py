"""`grants`: what is remembered, in running sessions and beyond them, and taking it back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest
from anyio import to_thread
from msgspec.structs import replace

from ironcurtain_proxy.cli import grants, parser_of
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.kept import GrantsFile
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.mailbox.session_state import GrantsAction
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.values import Json
from tests.grants.kept_grants import NOW, a_kept
from tests.mailbox.mailbox_fixture import CLOCK

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("X-12")]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESCALATION_DIR", raising=False)
    at(monkeypatch, days=0)
    directory = tmp_path / ".ironcurtain"
    directory.mkdir(mode=0o700)
    return directory


def at(monkeypatch: pytest.MonkeyPatch, *, days: float) -> None:
    """So many days after the grants were given."""
    monkeypatch.setattr(grants, "utc_now", lambda: NOW + timedelta(days=days))


def keep(state: Path, *kept: KeptGrant) -> GrantsFile:
    file = GrantsFile(state / "grants.json")
    file.update(lambda _: kept)
    return file


def used(kept: KeptGrant, *, times: int, after_days: float) -> KeptGrant:
    last = NOW + timedelta(days=after_days)
    return replace(kept, remembered=replace(kept.remembered, uses=times, last_used=last))


def command(*words: str) -> int:
    return grants.run(parser_of(["grants"]).parse_args(["grants", *words]))


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert command("list", *words) == 0
    return capsys.readouterr().out.splitlines()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Json]]:
    assert command("list", "--json", *words) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


FOR = "Let write_file change files below /srv/out (server files, append=false)"


def test_with_nothing_remembered_the_list_says_so_and_makes_no_file(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(capsys) == ["nothing is remembered"]
    assert listed(capsys) == []
    assert command("clear") == 0
    assert list(state.iterdir()) == []


def test_kept_grants_are_listed_with_their_reach_their_end_and_how_long_they_were_not_used(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = replace(a_kept("gu"), scope="user", workspace=None)
    keep(
        state,
        a_kept("gp"),
        used(user, times=3, after_days=2),
        used(user_of("g1"), times=1, after_days=12),
    )
    at(monkeypatch, days=12.5)
    assert lines(capsys) == [
        f"gp  {FOR}  (not used yet, given on 2026-01-01; for /work/one; expires 2026-01-31)",
        f"gu  {FOR}  (used 3 times, not used for 10 days; for all projects; expires 2026-01-31)",
        f"g1  {FOR}  (used once, last in the past day; for all projects; expires 2026-01-31)",
    ]


def user_of(identifier: str) -> KeptGrant:
    return replace(a_kept(identifier), scope="user", workspace=None)


def test_the_list_as_json_carries_every_field(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(state, used(a_kept("gp"), times=2, after_days=1))
    at(monkeypatch, days=8)
    assert listed(capsys) == [
        {
            "id": "gp",
            "description": FOR,
            "scope": "project",
            "workspace": "/work/one",
            "server": "files",
            "tool": "write_file",
            "createdAt": "2026-01-01T12:00:00+00:00",
            "expiresAt": "2026-01-31T12:00:00+00:00",
            "source": "e1",
            "reason": "outside the workspace",
            "policyVersion": "p1",
            "uses": 2,
            "lastUsed": "2026-01-02T12:00:00+00:00",
            "unusedDays": 7,
            "void": None,
            "session": None,
            "sessions": [],
        }
    ]


def test_those_unused_for_so_many_days_are_listed_alone(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(state, a_kept("never"), used(a_kept("lately"), times=1, after_days=8))
    at(monkeypatch, days=10)
    assert [one["id"] for one in listed(capsys, "--unused", "2")] == ["never", "lately"]
    assert [one["id"] for one in listed(capsys, "--unused", "3")] == ["never"]
    assert [one["id"] for one in listed(capsys, "--unused", "10")] == ["never"]
    assert lines(capsys, "--unused", "11") == ["no grant is unused for so long"]
    with pytest.raises(SystemExit):
        command("list", "--unused", "-1")


def test_what_has_expired_is_not_listed(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(state, a_kept())
    at(monkeypatch, days=30)
    assert listed(capsys) == []


def test_a_kept_grant_is_revoked_by_the_beginning_of_its_id_and_no_other(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = keep(state, a_kept("aa1"), a_kept("ab1"))
    assert command("revoke", "a") == 1
    assert command("revoke", "c") == 1
    assert len(file.read().grants) == 2
    assert command("revoke", "aa") == 0
    assert [kept.id for kept in file.read().grants] == ["ab1"]
    output = capsys.readouterr()
    assert output.out == "revoked aa1\n"
    assert "'a' is more than one grant" in output.err
    assert "'c' is no grant" in output.err


def test_clear_takes_all_back_what_cannot_be_read_too(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = keep(state, a_kept("g1"), a_kept("g2"))
    file.path.write_bytes(file.path.read_bytes().replace(b'"g1"', b'"g9"'))
    assert command("clear") == 0
    output = capsys.readouterr()
    assert output.out == "cleared 1 grant\n"
    assert f"{file.path}: grant 1 is ignored: it was changed" in output.err
    assert file.read().grants == ()
    assert file.read().read.problems == ()


def test_a_file_that_cannot_be_trusted_is_told_and_nothing_is_said_to_be_done(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(state, a_kept()).path.chmod(0o666)
    assert listed(capsys) == []
    assert command("clear") == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "can be written by other users" in output.err


# --- with running sessions -----------------------------------------------------------------------


def shown(identifier: str, *, uses: int = 0, last: str | None = None) -> dict[str, Json]:
    """As a proxy shows it: without what it cannot know of the file."""
    return {
        "id": identifier,
        "description": FOR,
        "createdAt": NOW.isoformat(),
        "uses": uses,
        "lastUsed": last,
        "expiresAt": None,
        "source": "e1",
    }


class Proxy:
    """One that carries out commands about grants, and keeps none itself."""

    def __init__(self, directory: Path, remembered: Sequence[dict[str, Json]]) -> None:
        self.remembered = list(remembered)
        self.directory = directory
        self.mailbox = Mailbox(
            MailboxSettings(directory=directory, assume_listener=True), CLOCK, self.obey
        )

    async def obey(self, action: GrantsAction, identifier: str | None) -> None:
        left = [] if action == "clear" else [g for g in self.remembered if g["id"] != identifier]
        self.remembered = left
        self.show()

    def show(self) -> None:
        self.mailbox.publish_grants(self.directory.name, self.remembered)


@asynccontextmanager
async def a_proxy(directory: Path, *remembered: dict[str, Json]) -> AsyncIterator[Proxy]:
    proxy = Proxy(directory, remembered)
    async with anyio.create_task_group() as tasks:
        await tasks.start(proxy.mailbox.run)
        proxy.show()
        yield proxy
        tasks.cancel_scope.cancel()


async def test_a_grant_of_two_sessions_and_the_file_is_listed_once_and_revoked_everywhere(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = keep(state, used(a_kept("gk"), times=2, after_days=1), a_kept("other"))
    later = (NOW + timedelta(days=3)).isoformat()
    async with (
        a_proxy(state / "sessions" / "s1", shown("gk", uses=5, last=later), shown("mine")) as one,
        a_proxy(state / "sessions" / "s2", shown("gk", uses=2)) as two,
    ):
        found = {str(grant["id"]): grant for grant in listed(capsys)}
        assert list(found) == ["gk", "mine", "other"]
        assert found["gk"]["sessions"] == ["s1", "s2"]
        assert (found["gk"]["uses"], found["gk"]["lastUsed"]) == (5, later)
        assert (found["gk"]["scope"], found["mine"]["scope"]) == ("project", "session")
        assert lines(capsys)[1].endswith(
            "(not used yet, given on 2026-01-01; session s1; ends with its session)"
        )
        assert await to_thread.run_sync(command, "revoke", "gk") == 0
        assert [grant["id"] for grant in one.remembered] == ["mine"]
        assert two.remembered == []
    assert [kept.id for kept in file.read().grants] == [GrantId("other")]


async def test_with_a_directory_named_only_its_session_s_grants_are_listed_and_cleared(
    state: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = keep(state, a_kept("mine"), a_kept("other"))
    box = tmp_path / "box"
    async with a_proxy(box, shown("mine")) as proxy:
        assert [grant["id"] for grant in listed(capsys, "--dir", str(box))] == ["mine"]
        assert await to_thread.run_sync(command, "clear", "--dir", str(box)) == 0
        assert proxy.remembered == []
    assert [kept.id for kept in file.read().grants] == ["other"]


async def test_what_a_proxy_left_behind_that_was_killed_is_no_grant(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = state / "sessions" / "s1"
    gone = Mailbox(
        MailboxSettings(directory=place, assume_listener=True),
        CLOCK,
        owner=Owner(pid=4_194_999, start_time="1"),
    )
    gone.publish_grants("s1", [shown("mine")])
    assert (place / "grants.json").exists()
    assert listed(capsys) == []


async def test_words_of_a_proxy_are_shown_as_they_are_and_never_believed(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd: dict[str, Json] = {"id": "g1", "description": "a\x1b[2J", "createdAt": 7, "uses": "many"}
    async with a_proxy(state / "sessions" / "s1", odd):
        assert lines(capsys) == [
            "g1  a\\x1b[2J  (not used yet, given on unknown; session s1; ends with its session)"
        ]


def test_the_beginning_of_an_id_takes_back_one_grant_and_no_other(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(state, user_of("abc1"), user_of("abd2"))
    for wrong in ("", "ab", "zz"):
        assert command("revoke", wrong) == 1
        assert "`ironcurtain-proxy grants list` shows the ids" in capsys.readouterr().err
    assert command("revoke", "ABC") == 0
    capsys.readouterr()
    assert [one["id"] for one in listed(capsys)] == ["abd2"]
