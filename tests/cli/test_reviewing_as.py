"""`approve`, `deny` and `review` in a mailbox that is one reviewer's."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.messages import Credential, response_name
from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined
from tests.cli.test_review import reviewing
from tests.cli.test_reviewing import command
from tests.mailbox.mailbox_fixture import a_box, escalation

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6", "C-31")]

TOKEN = "s3cret-" * 6
OWN = Credential("night-shift", TOKEN)
VARIABLE = "IRONCURTAIN_REVIEWER_TOKEN_FILE"


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESCALATION_DIR", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    return str(a_file(tmp_path / "token", TOKEN))


def a_file(path: Path, content: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(f"{content}\n")
    return path


async def test_the_reviewer_answers_with_its_token(tmp_path: Path, token: str) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        first, second = escalation(), escalation()
        own = ("--dir", str(box.path), "--as", "night-shift", "--token-file", token)
        async with box.asked(first), box.asked(second):
            assert await command("approve", first.id[:8], "--note", "fine", *own) == 0
            assert await command("deny", second.id[:8], *own) == 0
        assert box.rulings[first.id] == Approved(by=Program("night-shift", "session"), note="fine")
        assert box.rulings[second.id] == Declined(
            by=Program("night-shift", "session"), kind="denied"
        )
        assert box.names() == []


async def test_the_environment_names_the_file_and_the_option_wins(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        own = ("--dir", str(box.path), "--as", "night-shift")
        async with box.asked(asked):
            monkeypatch.setenv(VARIABLE, str(a_file(tmp_path / "other", "0ther-" * 6)))
            assert await command("approve", asked.id, *own) == 1
            assert await command("approve", asked.id, *own, "--token-file", token) == 0


async def test_a_person_is_told_who_is_asked_and_nothing_is_written(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, token)
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation(seconds=1)
        async with box.asked(asked):
            for words in (("approve", asked.id), ("deny", asked.id), ("deny", "all")):
                assert await command(*words, "--dir", str(box.path)) == 1
                assert 'only "night-shift" may answer this' in capsys.readouterr().err
            assert box.names() == [f"request-{asked.id}.json"]
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")


async def test_a_wrong_token_is_said_to_be_no_answer_and_the_call_still_waits(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(a_file(tmp_path / "other", "0ther-" * 6))
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        own = ("--dir", str(box.path), "--as", "night-shift", "--token-file")
        async with box.asked(asked):
            assert await command("approve", asked.id, *own, other) == 1
            said = capsys.readouterr().err
            assert "the answer did not count" in said
            assert "0ther" not in said
            assert await command("deny", asked.id, *own, token) == 0
        assert isinstance(box.rulings[asked.id], Declined)


async def test_another_reviewer_is_told_that_somebody_else_is_asked(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("--as", "day-shift", "--token-file", token)
    async with a_box(tmp_path / "box", credential=OWN) as box, a_box(tmp_path / "home") as mine:
        asked, others = escalation(), escalation()
        async with box.asked(asked), mine.asked(others):
            assert await command("approve", asked.id, "--dir", str(box.path), *own) == 1
            assert '"night-shift" is asked about this, not "day-shift"' in capsys.readouterr().err
            assert await command("approve", others.id, "--dir", str(mine.path), *own) == 1
            assert "a person is asked about this" in capsys.readouterr().err
            assert await command("deny", others.id, "--dir", str(mine.path)) == 0
            own = ("--as", "night-shift", "--token-file", token)
            assert await command("deny", "all", "--dir", str(box.path), *own) == 0


async def test_all_is_all_that_one_is_asked_about(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("--dir", str(tmp_path / "box"), "--dir", str(tmp_path / "home"))
    async with a_box(tmp_path / "box", credential=OWN) as box, a_box(tmp_path / "home") as mine:
        asked, others = escalation(), escalation()
        async with box.asked(asked), mine.asked(others):
            assert await command("approve", "all", *both) == 0
            assert f"{asked.id[:8]} " in capsys.readouterr().err
            assert asked.id not in box.rulings
            own = ("--as", "night-shift", "--token-file", token)
            assert await command("approve", "all", *both, *own) == 0
        assert mine.rulings[others.id] == Approved(by=HUMAN)
        assert box.rulings[asked.id] == Approved(by=Program("night-shift", "session"))


async def test_a_stranger_s_file_hides_no_question_and_takes_no_name(
    tmp_path: Path, token: str
) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        own = ("--dir", str(box.path), "--as", "night-shift", "--token-file", token)
        async with box.asked(asked):
            # Not looked at before it has grown old: see `may_still_be_written`.
            box.response(asked).touch()
            assert await command("approve", asked.id, *own) == 0
        assert isinstance(box.rulings[asked.id], Approved)


async def test_what_changed_since_it_was_shown_is_not_answered(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody showed other words under the id, and put the real ones back."""
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation(arguments={"path": "/etc/shadow"})
        own = ("--dir", str(box.path), "--as", "night-shift", "--token-file", token)
        async with box.asked(asked):
            real = box.request(asked).read_bytes()
            box.request(asked).write_bytes(real.replace(b"shadow", b"motd"))
            assert await command("pending", "--dir", str(box.path)) == 0
            (box.path / "x").write_bytes(real)
            (box.path / "x").rename(box.request(asked))
            assert await command("approve", asked.id, *own) == 1
            assert "changed since `pending` showed it" in capsys.readouterr().err
            assert await command("pending", "--dir", str(box.path)) == 0
            assert await command("deny", asked.id, *own) == 0


async def test_the_list_says_who_is_asked(
    tmp_path: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation(seconds=1)
        async with box.asked(asked):
            assert await command("pending", "--json", "--dir", str(box.path)) == 0
            (listed,) = orjson.loads(capsys.readouterr().out)
            assert listed["reviewer"] == "night-shift"
            assert await command("pending", "--dir", str(box.path)) == 0
            assert "night-shift" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--as", "x"), "--as needs --token-file FILE, or IRONCURTAIN_REVIEWER_TOKEN_FILE"),
        (("--token-file", "/nowhere"), "--token-file needs --as NAME"),
        (("--as", "x", "--token-file", "/nowhere"), "token file /nowhere cannot be read"),
    ],
    ids=str,
)
async def test_half_of_it_is_refused(
    words: tuple[str, ...], message: str, token: str, tmp_path: Path
) -> None:
    for name in ("approve", "deny"):
        with pytest.raises(ConfigurationError, match=message):
            await command(name, "all", "--dir", str(tmp_path), *words)


async def test_review_answers_with_the_token_and_refuses_without_it(
    tmp_path: Path, token: str
) -> None:
    own = ("--as", "night-shift", "--token-file", token)
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        async with box.asked(asked):
            for words, wanted in (((), 'only "night-shift" may answer'), (own, "approved ")):
                said = await reviewed(str(box.path), *words)
                assert wanted in said
                if not words:
                    assert not (box.path / response_name(asked.id)).exists()
        assert box.rulings[asked.id] == Approved(by=Program("night-shift", "session"))


async def reviewed(directory: str, *words: str) -> str:
    """What `review --plain` says when the first call is approved."""
    async with reviewing("--plain", "--dir", directory, *words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdin.send(b"/approve 1\n/quit\n")
        await process.wait()
        said = b""
        for stream in (process.stdout, process.stderr):
            async for part in stream:
                said += part
        return said.decode()
