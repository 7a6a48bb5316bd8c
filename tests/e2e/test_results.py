"""What the operator has changed of servers' answers."""

import orjson
import pytest

from ironcurtain_proxy.audit.redaction import redacted
from ironcurtain_proxy.mediation.outcome import cleaned
from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation
from tests.e2e.raw_client import text
from tests.tables import table

KEY = "ghp_" + "a1B2" * 9
SAID = f"\x1b[31mred\x1b[0m\u200b \U000e0041token {KEY}"


def answer(installation: Installation, **results: Json) -> str:
    installation.add_scripted(results={**results})
    installation.allow_scripted()
    return text(installation.start().call("answer", {"text": SAID}))


def test_an_answer_passes_as_it_is_unless_the_operator_says_otherwise(
    installation: Installation,
) -> None:
    assert answer(installation) == SAID


def test_escapes_and_invisible_characters_are_taken_out(installation: Installation) -> None:
    said = answer(installation, clean=True)
    assert said == f"red token {KEY}"


def test_secrets_are_masked(installation: Installation) -> None:
    said = answer(installation, redactSecrets=True)
    assert KEY not in said
    assert "token" in said


@pytest.mark.parametrize(
    ("said", "plain"), table("e2e/results.what_a_terminal_obeys_is_gone", list[tuple[str, str]])
)
def test_what_a_terminal_obeys_is_gone_and_words_stay(said: str, plain: str) -> None:
    assert cleaned(said) == plain
    assert cleaned({said: [said]}) == {plain: [plain]}


@pytest.mark.parametrize("name", ["data", "blob"])
def test_the_name_of_a_field_hides_nothing(name: str) -> None:
    said: Json = {"structuredContent": {name: {"x": "\x1b[2Ja"}}, name: "b\u200b"}
    assert cleaned(said) == {"structuredContent": {name: {"x": "a"}}, name: "b"}


def test_base64_is_left_alone() -> None:
    image: Json = {"type": "image", "data": "eyJhbGciOi" + "A" * 100, "mimeType": "image/png"}
    assert cleaned(image) == image
    assert redacted(image) == image


def test_a_secret_in_a_field_of_any_name_is_masked() -> None:
    secret = "AKIA" + "Q7WERTYUIOPASDFG"
    for name in ("data", "blob", "text"):
        assert secret not in str(redacted({"structuredContent": {name: f"id {secret} end"}}))


def test_what_stands_under_a_telling_name_is_masked() -> None:
    value: Json = {"structuredContent": {"password": "hunter2", "ok": True, "apiKey": 12345}}
    assert "hunter2" not in str(redacted(value))
    assert "12345" not in str(redacted(value))
    assert "True" in str(redacted(value))


def test_what_is_nested_without_end_is_left_out() -> None:
    deep: Json = "x"
    for _ in range(20_000):
        deep = [deep]
    assert "x" not in orjson.dumps(cleaned(deep)).decode()
    assert "x" not in orjson.dumps(redacted(deep)).decode()
