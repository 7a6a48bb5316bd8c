"""`kind: session` in `auto_confirm.reviewers`: what it needs, and what of it is out of reach."""

from pathlib import Path

import pytest

from ironcurtain_proxy.auto_confirm.engine_memory import EngineParts
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.review.terminal import Panel
from ironcurtain_proxy.wiring.auto_confirm import EngineSurroundings, assemble_engine
from tests.config.auto_confirm.test_settings import loaded, refusal
from tests.config.files import write
from tests.config.policy.test_protection import is_protected
from tests.fakes import FakeClock
from tests.tables import table

TOKEN = "s3cret-" * 6


def a_session(**more: Json) -> dict[str, Json]:
    return {
        "name": "night-shift",
        "session_type": "architect",
        "kind": "session",
        "mailbox": "desk/mail",
        "token_file": "desk/token",
        **more,
    }


def section(**more: Json) -> Json:
    return {"enabled": True, "reviewers": [a_session(**more)]}


def test_a_session_is_read_with_paths_against_the_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, section(session="s-9", session_type="architect", may_deny=False))
    assert config is not None
    (spec,), (reviewer,) = config.reviewers, config.engine.reviewers
    assert (spec.kind, spec.name) == ("session", "night-shift")
    assert (spec.mailbox, spec.token_file) == (f"{tmp_path}/desk/mail", f"{tmp_path}/desk/token")
    assert (reviewer.kind, reviewer.session) == ("process", "s-9")
    assert (reviewer.session_type, reviewer.may_deny) == ("architect", False)
    assert config.mailboxes == (tmp_path / "desk/mail",)
    assert config.token_files == (tmp_path / "desk/token",)


@pytest.mark.parametrize(
    ("key", "words"), [("mailbox", "mailbox: is missing"), ("token_file", "token_file: is missing")]
)
def test_mailbox_and_token_are_required(tmp_path: Path, key: str, words: str) -> None:
    said = a_session()
    del said[key]
    assert words in refusal(tmp_path, {"reviewers": [said]})


@pytest.mark.parametrize(
    ("more", "words"),
    table(
        "config/session_settings.what_is_not_for_a_session_is_refused",
        list[tuple[dict[str, Json], str]],
    ),
    ids=str,
)
def test_what_is_not_for_a_session_is_refused(
    tmp_path: Path, more: dict[str, Json], words: str
) -> None:
    found = refusal(tmp_path, section(**more))
    assert words in found
    assert "s3cret" not in found


# --- the token


def engine(tmp_path: Path, **more: Json) -> EngineParts:
    config = write(
        tmp_path / "c.json",
        {"mcpServers": {"x": {"command": "x"}}, "auto_confirm": section(**more)},
    )
    settings = load_settings({"HOME": str(tmp_path)}, config)
    assert settings.auto_confirm is not None
    around = EngineSurroundings(clock=FakeClock(), environ={}, people=Panel([]))
    return assemble_engine(settings, settings.auto_confirm, around)


def a_token(tmp_path: Path, mode: int = 0o600) -> Path:
    file = tmp_path / "desk/token"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{TOKEN}\n")
    file.chmod(mode)
    return file


def test_a_session_s_seat_says_which_session_it_is(tmp_path: Path) -> None:
    a_token(tmp_path)
    assert engine(tmp_path).chain.seats["night-shift"].session == "night-shift"
    parts = engine(tmp_path, session="s-9", may_deny=False)
    assert parts.chain.seats["night-shift"].session == "s-9"
    assert parts.chain.seats["night-shift"].may_deny is False
    assert len(parts.mailboxes) == 1
    assert "s3cret" not in repr(parts.chain.seats)


def test_a_token_that_cannot_be_used_stops_the_start_and_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'session "night-shift": token file /') as missing:
        engine(tmp_path)
    assert "desk/token cannot be read" in str(missing.value)
    a_token(tmp_path, 0o644)
    with pytest.raises(ConfigurationError, match="chmod 600") as open_to_all:
        engine(tmp_path)
    assert "s3cret" not in str(open_to_all.value)


# --- what is out of reach


def policy(home: Path, reviewer: Json) -> Policy:
    (home / "work").mkdir(parents=True)
    config = write(
        home / "my.json",
        {
            "mcpServers": {"x": {"command": "x"}},
            "allowedDirectory": str(home / "work"),
            "auto_confirm": {"reviewers": [reviewer]},
        },
    )
    return load_policy(load_settings({"HOME": str(home)}, config)).policy


@pytest.mark.requirement("C-20")
@pytest.mark.parametrize("place", ["desk", "work/desk"])
def test_no_rule_opens_a_session_s_mailbox_or_token(tmp_path: Path, place: str) -> None:
    home = tmp_path.resolve() / "home"
    said = a_session(mailbox=f"{place}/mail", token_file=f"{place}/token")
    found = policy(home, said)
    for name in ("mail", "mail/response-1.json", "mail/request-1.json", "token"):
        assert is_protected(found, home / place / name, "read-path")
        assert is_protected(found, home / place / name, "write-path")
        assert is_protected(found, home / place / name, "delete-path")
    assert not is_protected(found, home / place / "other", "read-path")


@pytest.mark.requirement("C-20")
def test_no_rule_opens_the_mailbox_of_a_person_who_looks_elsewhere(tmp_path: Path) -> None:
    home = tmp_path.resolve() / "home"
    found = policy(home, {"name": "anna", "kind": "human", "mailbox": "anna/mail"})
    assert is_protected(found, home / "anna/mail/response-1.json", "write-path")
    assert not is_protected(found, home / "anna/other", "write-path")
