"""What a server is told of its surroundings: its own, and nothing of anybody else's."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, text

SECRET = "tr0ub4dor-and-3-horses"  # noqa: S105  the test's own


def environment_of(agent: RawClient, tool: str) -> dict[str, str]:
    variables: Json = orjson.loads(text(agent.call(tool)))
    assert isinstance(variables, dict)
    return {name: str(value) for name, value in variables.items()}


def two_servers(installation: Installation) -> Installation:
    installation.add_scripted("one", env={"OWN_SETTING": "of one"})
    installation.add_scripted("two", env={"OTHER_SETTING": "of two"})
    installation.allow_scripted("one", "two")
    return installation


def test_a_server_gets_its_own_variables_and_credentials_and_nothing_of_the_proxy(
    installation: Installation,
) -> None:
    """G15."""
    credentials = {"one": {"ONE_TOKEN": SECRET}, "two": {"TWO_TOKEN": "another"}}
    agent = two_servers(installation).start(
        SERVER_CREDENTIALS=orjson.dumps(credentials).decode(),
        OPENAI_API_KEY="of the proxy",
        SSH_AUTH_SOCK="/run/agent",
        LD_PRELOAD="",
        NODE_OPTIONS="--no-warnings",
    )
    one = environment_of(agent, "one__environment")
    assert one["OWN_SETTING"] == "of one"
    assert one["ONE_TOKEN"] == SECRET
    given = {"E2E_MARK", "SCRIPTED_JOURNAL", "OWN_SETTING", "ONE_TOKEN"}
    base = {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "TERM", "USER", "LOGNAME", "SHELL", "TZ"}
    # Of a Python server, made of its name.
    base |= {"PYTHONHASHSEED"}
    assert set(one) - given <= base
    assert "another" not in str(one)
    assert str(installation.audit) not in str(one)
    two = environment_of(agent, "two__environment")
    assert two.get("TWO_TOKEN") == "another"
    assert "ONE_TOKEN" not in two


def test_a_credential_that_a_server_prints_is_masked_in_the_session_log(
    installation: Installation,
) -> None:
    credentials = {"one": {"ONE_TOKEN": SECRET}}
    agent = two_servers(installation).start(SERVER_CREDENTIALS=orjson.dumps(credentials).decode())
    # So long that it is read in pieces, which end in the middle of the secret.
    agent.call("one__stderr", {"text": f"trying {SECRET} " * 20_000 + "\n", "times": 1})
    agent.close()
    log = installation.session_log.read_bytes()
    assert b"trying" in log
    said = log + agent.errors.read_bytes()
    parts = [SECRET[start : start + 6].encode() for start in range(len(SECRET) - 5)]
    assert [part for part in parts if part in said] == []


def test_the_session_log_is_for_its_owner_alone(scripted: Installation) -> None:
    agent = scripted.start()
    agent.call("stderr", {"text": "hello\n", "times": 1})
    agent.close()
    assert scripted.session_log.stat().st_mode & 0o077 == 0
    assert scripted.audit.stat().st_mode & 0o077 == 0


@pytest.mark.requirement("C-37", "C-38", "C-40")
def test_secrets_are_redacted_in_the_audit_log(scripted: Installation) -> None:
    """G19."""
    key = "sk-ant-api03-" + "aB3" * 30
    agent = scripted.start()
    assert text(agent.call("answer", {"text": f"my key {key}"})) == f"my key {key}"
    agent.call("forbidden", {"text": f"4111 1111 1111 1111 and {key}"})
    log = scripted.audit.read_text(encoding="utf-8")
    assert key not in log
    assert "4111 1111 1111 1111" not in log


@pytest.mark.requirement("C-41")
def test_redaction_can_be_switched_off(scripted: Installation) -> None:
    agent = scripted.start(AUDIT_REDACTION="false")
    agent.call("answer", {"text": "4111 1111 1111 1111"})
    assert "4111 1111 1111 1111" in scripted.audit.read_text(encoding="utf-8")


def test_the_content_of_a_result_is_never_recorded(scripted: Installation) -> None:
    agent = scripted.start()
    agent.call("raw", {"line": '{"content":[{"type":"text","text":"\\u0071uite private"}]}'})
    agent.call("fill", {"bytes": 100_000})
    log = scripted.audit.read_text(encoding="utf-8")
    assert "quite private" not in log
    assert len(log) < 20_000
