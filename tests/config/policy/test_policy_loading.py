"""Which files are read, and what becomes of them together."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.policy.policy_file import SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.values import Json
from tests.config.files import RULE, TOOL, annotations, policy, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def load(home: Path, **variables: str) -> LoadedPolicy:
    return load_policy(load_settings({"HOME": str(home), **variables}))


def names(loaded: LoadedPolicy) -> list[str]:
    return [rule.name for rule in loaded.policy.rules]


def test_without_files_the_shipped_ones_are_used(home: Path) -> None:
    loaded = load(home)
    assert loaded.files.policy == SHIPPED / "compiled-policy.json"
    assert len(loaded.policy.rules) > 10
    assert {server for server, _ in loaded.annotations} == {
        "filesystem",
        "memory",
        "everything",
        "git",
        "fetch",
        "time",
    }
    assert loaded.warnings == ()


def test_files_in_the_state_directory_are_used_one_by_one(home: Path) -> None:
    write(home / ".ironcurtain/generated/compiled-policy.json", policy(RULE))
    loaded = load(home)
    assert names(loaded)[:2] == ["allow-notes", "escalate-read-secret-file"]
    assert ("git", "git_status") in loaded.annotations


def test_the_directory_that_was_named_wins(home: Path) -> None:
    write(home / ".ironcurtain/generated/compiled-policy.json", policy())
    write(home / "mine/compiled-policy.json", policy(RULE))
    assert names(load(home, GENERATED_DIR="~/mine")) == ["allow-notes"]


def test_own_annotations_replace_the_shipped_ones_of_that_server_alone(home: Path) -> None:
    write(home / "mine/compiled-policy.json", policy(RULE))
    write(home / "mine/tool-annotations.json", annotations(TOOL))
    loaded = load(home, GENERATED_DIR="~/mine")
    assert [tool for server, tool in loaded.annotations if server == "filesystem"] == ["edit_file"]
    assert ("git", "git_status") in loaded.annotations
    write(home / "other/tool-annotations.json", annotations({**TOOL, "toolName": "x"}))
    loaded = load(home, GENERATED_DIR="~/mine", TOOL_ANNOTATIONS_DIR="~/other")
    assert [tool for server, tool in loaded.annotations if server == "filesystem"] == ["x"]


def test_lists_belong_to_the_policy_beside_them(home: Path) -> None:
    lists: Json = {"lists": {"news": {"values": ["bbc.com"]}}}
    write(home / ".ironcurtain/generated/dynamic-lists.json", lists)
    rule: dict[str, Json] = {
        "name": "news",
        "if": {"domains": {"roles": ["fetch-url"], "allowed": ["@news"]}},
        "then": "allow",
    }
    write(home / "mine/compiled-policy.json", policy(rule))
    loaded = load(home, GENERATED_DIR="~/mine")
    assert loaded.policy.rules[0].domains is not None
    assert loaded.policy.rules[0].domains.allowed == frozenset()
    assert len(loaded.warnings) == 1
    write(home / "mine/dynamic-lists.json", lists)
    loaded = load(home, GENERATED_DIR="~/mine")
    assert loaded.policy.rules[0].domains is not None
    assert loaded.policy.rules[0].domains.allowed == {"bbc.com"}


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"GENERATED_DIR": "~/empty"}, "has no compiled-policy.json: write it there"),
        ({"GENERATED_DIR": "~/nowhere"}, "has no compiled-policy.json: write it there"),
        ({"TOOL_ANNOTATIONS_DIR": "~/empty"}, "has no tool-annotations.json: write it there"),
    ],
)
def test_a_directory_that_was_named_is_never_passed_over(
    variables: dict[str, str], problem: str, home: Path
) -> None:
    write(home / ".ironcurtain/generated/compiled-policy.json", policy(RULE))
    (home / "empty").mkdir()
    with pytest.raises(ProblemsError, match=problem):
        load(home, **variables)


@pytest.mark.parametrize("name", ["compiled-policy", "tool-annotations", "dynamic-lists"])
def test_a_file_that_cannot_be_read_stops_the_start(name: str, home: Path) -> None:
    generated = home / ".ironcurtain/generated"
    write(generated / "compiled-policy.json", policy(RULE))
    file = generated / f"{name}.json"
    file.unlink(missing_ok=True)
    file.write_bytes(b"")
    with pytest.raises(ProblemsError, match="is empty"):
        load(home)
    file.unlink()
    file.mkdir()
    with pytest.raises(ProblemsError, match="is a directory"):
        load(home)
    file.rmdir()
    file.symlink_to("nowhere")
    with pytest.raises(ProblemsError, match="does not exist"):
        load(home)


def test_the_version_changes_with_every_file(home: Path) -> None:
    generated = home / ".ironcurtain/generated"
    versions = [load(home).version]
    write(generated / "compiled-policy.json", policy(RULE))
    versions.append(load(home).version)
    write(generated / "tool-annotations.json", annotations(TOOL))
    versions.append(load(home).version)
    write(generated / "dynamic-lists.json", {"lists": {}})
    versions.append(load(home).version)
    assert load(home).version == versions[-1]
    assert len(set(versions)) == 4
    assert all(len(version) == 64 for version in versions)


def gate(*allowed: list[str] | None) -> str:
    entries = []
    for index, domains in enumerate(allowed):
        network = (
            "" if domains is None else f',"sandbox":{{"network":{{"allowedDomains":{domains}}}}}'
        )
        entries.append(
            f'"s{index}":{{"command":"x","annotations":"git"{network}}}'.replace("'", '"')
        )
    return "{" + ",".join(entries) + "}"


def test_the_hosts_of_a_servers_sandbox_are_its_gate(home: Path) -> None:
    loaded = load(home, MCP_SERVERS_CONFIG=gate(["GitHub.com", "*.github.com"]))
    assert loaded.policy.domain_allowlists == {"git": {"github.com", "*.github.com"}}


def test_servers_that_share_annotations_share_the_narrower_gate(home: Path) -> None:
    loaded = load(home, MCP_SERVERS_CONFIG=gate(["a.com", "b.com"], None, ["b.com"]))
    assert loaded.policy.domain_allowlists == {"git": {"b.com"}}


def test_gates_with_nothing_in_common_are_refused(home: Path) -> None:
    """An empty list would open the gate."""
    with pytest.raises(ProblemsError, match="no allowed domain in common"):
        load(home, MCP_SERVERS_CONFIG=gate(["a.com"], ["b.com"]))
