"""What the operator got wrong stops the start: one line says where, what and the nearest word."""

import os
from collections.abc import Callable

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import STAMP, Installation, rule
from tests.e2e.raw_client import Message, at, text
from tests.program import PATIENCE
from tests.tables import table

REFUSED = 2


def refusal(installation: Installation, **variables: str) -> str:
    """Start a proxy that must refuse; what it says, once it was seen that nothing ran."""
    proxy = installation.launch(**variables)
    assert proxy.process.wait(PATIENCE) == REFUSED
    complaint = proxy.errors.read_text(encoding="utf-8")
    assert "Traceback" not in complaint
    assert proxy.arrived == []
    assert not installation.journal_file().exists(), "a server was started"
    assert not installation.audit.exists()
    return complaint


def blocks(installation: Installation) -> None:
    installation.rules.append(rule("r", "block"))


def lists(installation: Installation) -> None:
    installation.rules.append(
        rule("lists", domains={"roles": ["fetch-url"], "allowed": ["@knwon"]})
    )
    known: Json = {"values": [], "manualAdditions": [], "manualRemovals": []}
    installation.write(
        "dynamic-lists.json", {"generatedAt": "", "lists": {"known": known}, "lsts": {}}
    )


def unknown_role(installation: Installation) -> None:
    installation.annotations["scripted"] = {"answer": {"text": ["raed-path"]}}


@pytest.mark.requirement("C-25")
@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (blocks, ["$.rules[2].then", "block"]),
        (lists, ["dynamic-lists.json", "$.lsts", "lists"]),
        (unknown_role, ["tool-annotations.json", "raed-path", "read-path"]),
    ],
)
def test_a_mistake_in_the_policy_starts_nothing(
    mistake: Callable[[Installation], None], told: list[str], scripted: Installation
) -> None:
    """G1."""
    mistake(scripted)
    complaint = refusal(scripted)
    for word in told:
        assert word in complaint
    assert str(scripted.generated) in complaint


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"null"], ids=str)
def test_a_policy_that_cannot_be_read_starts_nothing(
    content: bytes, scripted: Installation
) -> None:
    scripted.write_policy()
    (scripted.generated / "compiled-policy.json").write_bytes(content)
    scripted.variables["GENERATED_DIR"] = str(scripted.generated)
    scripted.rules.clear()
    assert "compiled-policy.json" in refusal(scripted)


def test_a_policy_that_may_not_be_opened_starts_nothing(scripted: Installation) -> None:
    scripted.variables["GENERATED_DIR"] = str(scripted.generated)
    scripted.rules.clear()
    file = scripted.generated / "compiled-policy.json"
    if os.geteuid() == 0:
        # Root may open anything but this.
        file.mkdir()
    else:
        file.write_bytes(b"{}")
        file.chmod(0)
    assert str(file) in refusal(scripted)


def test_a_policy_that_is_not_where_it_should_be_starts_nothing(scripted: Installation) -> None:
    scripted.variables["GENERATED_DIR"] = str(scripted.generated)
    scripted.rules.clear()
    assert "compiled-policy.json" in refusal(scripted)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    table("e2e/start.a_setting_that_cannot_be_used_starts", list[tuple[str, str, str]]),
)
def test_a_setting_that_cannot_be_used_starts_nothing(
    variable: str, value: str, told: str, scripted: Installation
) -> None:
    assert told in refusal(scripted, **{variable: value})


def test_the_home_directory_is_no_workspace(scripted: Installation) -> None:
    assert "home" in refusal(scripted, ALLOWED_DIRECTORY=str(scripted.home))


def test_an_audit_log_that_cannot_be_opened_starts_nothing(scripted: Installation) -> None:
    proxy = scripted.launch(AUDIT_LOG_PATH="/dev/null/audit.jsonl")
    assert proxy.process.wait(PATIENCE) in (1, REFUSED)
    complaint = proxy.errors.read_text(encoding="utf-8")
    assert "/dev/null/audit.jsonl" in complaint
    assert "Traceback" not in complaint
    assert scripted.received() == []


@pytest.mark.requirement("C-16")
def test_a_second_proxy_on_one_audit_log_writes_its_own_and_says_so(scripted: Installation) -> None:
    first = scripted.start()
    second = scripted.start()
    own = scripted.audit.with_name(f"{scripted.audit.name}.{second.process.pid}")
    assert text(first.call("answer", {"text": "first"})) == "first"
    assert text(second.call("answer", {"text": "second"})) == "second"
    for file, said in ((scripted.audit, "first"), (own, "second")):
        assert {at(entry, "arguments", "text") for entry in scripted.records(file)} == {said}
    assert str(own) in second.errors.read_text(encoding="utf-8")


def test_without_any_server_it_says_how_to_begin(installation: Installation) -> None:
    complaint = refusal(installation, MCP_SERVERS_CONFIG="")
    assert "MCP_SERVERS_CONFIG" in complaint
    assert "mcp-servers.json" in complaint


def test_a_clients_own_file_is_taken_as_it_is(installation: Installation) -> None:
    installation.add_scripted()
    installation.allow_scripted()
    entry = installation.servers["scripted"]
    assert isinstance(entry, dict)
    entry.pop("sandbox")
    foreign: Json = {
        "mcpServers": {
            "scripted": {**entry, "alwaysAllow": ["answer"], "type": "stdio"},
            "remote": {"type": "http", "url": "https://example.com/mcp"},
            "off": {**entry, "disabled": True},
        }
    }
    state = installation.home / ".ironcurtain"
    state.mkdir()
    installation.generated, generated = state, installation.generated
    installation.write("mcp-servers.json", foreign)
    installation.generated = generated
    agent = installation.start(MCP_SERVERS_CONFIG="")
    # Two servers: their tools are told apart by their names.
    assert text(agent.call("scripted__answer", {"text": "hello"})) == "hello"
    said = agent.errors.read_text(encoding="utf-8")
    assert "alwaysAllow" in said
    assert "remote" in said


def test_the_policy_stamp_may_be_the_originals(scripted: Installation) -> None:
    scripted.write_policy()
    extra: Message = {
        **STAMP,
        "rules": list(scripted.rules),
        "listDefinitions": [],
        "skippedServers": [],
    }
    scripted.write("compiled-policy.json", extra)
    scripted.variables["GENERATED_DIR"] = str(scripted.generated)
    scripted.rules.clear()
    assert text(scripted.start().call("answer", {"text": "hello"})) == "hello"
