"""How escalations are settled, as the operator says it."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import Settings, load_settings


def load(tmp_path: Path, document: object = None, **environ: str) -> Settings:
    config = None
    if document is not None:
        config = tmp_path / "config.json"
        config.write_bytes(orjson.dumps(document))
    return load_settings({"HOME": str(tmp_path), **environ}, config)


@pytest.mark.requirement("A-1", "A-14", "A-20", "A-30", "A-31", "A-83", "C-30")
def test_the_auto_approver_is_off_and_its_model_is_known(tmp_path: Path) -> None:
    settings = load(tmp_path).auto_approve
    assert settings.enabled is False
    assert settings.model_id == "anthropic:claude-haiku-4-5"
    assert settings.target_check is True
    assert load(tmp_path).escalation.mode == "auto"
    assert load(tmp_path).escalation.channels == ("mailbox",)


@pytest.mark.requirement("A-29", "A-32", "A-84")
def test_the_file_switches_it_on(tmp_path: Path) -> None:
    document = {"autoApprove": {"enabled": True, "modelId": "openai:gpt-5-mini"}}
    settings = load(tmp_path, document).auto_approve
    assert settings.enabled
    assert settings.model_id == "openai:gpt-5-mini"


@pytest.mark.requirement("A-85")
@pytest.mark.parametrize("model", ["claude", "other:x", "anthropic:", "anthropic:a b", 5])
def test_an_invalid_model_is_refused(tmp_path: Path, model: object) -> None:
    with pytest.raises(ProblemsError, match="modelId"):
        load(tmp_path, {"autoApprove": {"modelId": model}})


@pytest.mark.requirement("A-48")
@pytest.mark.parametrize(
    ("word", "on"), [("true", True), ("TRUE", False), ("1", False), ("yes", False)]
)
def test_only_the_word_true_in_the_environment_switches_it_on(
    tmp_path: Path, word: str, on: bool
) -> None:
    assert load(tmp_path, AUTO_APPROVE_ENABLED=word).auto_approve.enabled is on


@pytest.mark.requirement("A-49", "A-50", "A-51", "A-52")
def test_model_key_and_log_come_from_the_environment_and_the_key_leaves_it(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "AUTO_APPROVE_MODEL_ID": "google:gemini-flash",
        "AUTO_APPROVE_API_KEY": "hush",
        "AUTO_APPROVE_LLM_LOG_PATH": str(tmp_path / "llm.jsonl"),
        "ANTHROPIC_API_KEY": "of the shell",
    }
    settings = load_settings(environ).auto_approve
    assert settings.model_id == "google:gemini-flash"
    assert settings.api_key == "hush"
    assert settings.llm_log == tmp_path / "llm.jsonl"
    assert "AUTO_APPROVE_API_KEY" not in environ
    assert "hush" not in repr(settings)


@pytest.mark.requirement("A-50", "A-52")
def test_the_key_of_the_model_s_provider_is_taken_from_the_file_and_none_from_the_shell(
    tmp_path: Path,
) -> None:
    document = {"anthropicApiKey": "a", "openaiApiKey": "o"}
    assert load(tmp_path, document).auto_approve.api_key == "a"
    assert load(tmp_path, ANTHROPIC_API_KEY="of the shell").auto_approve.api_key == ""


@pytest.mark.requirement("A-65")
def test_the_llm_log_lies_in_the_session_s_directory(tmp_path: Path) -> None:
    settings = load(tmp_path, IRONCURTAIN_SESSION_ID="s1")
    expected = tmp_path / ".ironcurtain/sessions/s1/auto-approve-llm.jsonl"
    assert settings.auto_approve.llm_log == expected


@pytest.mark.parametrize(
    "section",
    [
        {"mode": "never"},
        {"holdAfterSeconds": 0},
        {"channels": ["mailbox", "pigeon"]},
        {"channel": ["mailbox"]},
        {"requireDigest": "yes please"},
    ],
)
def test_words_that_are_not_known_are_refused(tmp_path: Path, section: object) -> None:
    with pytest.raises(ProblemsError, match="escalation"):
        load(tmp_path, {"escalation": section})


def test_notices_go_where_the_file_says_and_no_address_is_repeated(tmp_path: Path) -> None:
    assert not load(tmp_path).escalation.notices.desktop
    document = {"noticeDesktop": True, "noticeNtfy": "https://ntfy.sh/topic-of-mine"}
    found = load(tmp_path, {"escalation": document}).escalation.notices
    assert (found.desktop, found.ntfy) == (True, "https://ntfy.sh/topic-of-mine")
    assert "topic-of-mine" not in repr(found)
    for address in ("ftp://x/secret", "https://u:secret@x/", "secret", "https://x/secret\n"):
        with pytest.raises(ProblemsError, match="noticeWebhook") as refused:
            load(tmp_path, {"escalation": {"noticeWebhook": address}})
        assert "secret" not in str(refused.value)


def test_every_setting_of_the_approver_is_read_from_the_file(tmp_path: Path) -> None:
    said = {"only": ["git/*"], "never": ["git/git_push"], "confidence": 0.5, "messages": 2}
    found = load(tmp_path, {"autoApprove": {**said, "shadow": True}}).auto_approve
    assert (found.only, found.never) == (("git/*",), ("git/git_push",))
    assert (found.confidence, found.messages, found.shadow) == (0.5, 2, True)
