"""Where a path leads decides; what is sent is what was judged."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, Roles, rule, tool
from tests.e2e.raw_client import Message, RawClient, at, text
from tests.tables import table

Files: TypeAlias = tuple[Installation, RawClient]

FILE_ROLES: Roles = {
    "read_file": {"path": ["read-path"]},
    "read_many": {"paths": ["read-path"]},
    "write_file": {"path": ["write-path"], "content": ["none"]},
    "move_file": {"source": ["read-path", "delete-path"], "destination": ["write-path"]},
}

FILE_TOOLS = [
    tool("read_file", path={"type": "string"}),
    tool("read_many", paths={"type": ["string", "array"]}),
    tool("write_file", path={"type": "string"}, content={"type": "string"}),
    tool("move_file", source={"type": "string"}, destination={"type": "string"}),
]


def furnish(installation: Installation, *rules: Message) -> Installation:
    """An installation with one server that the policy knows as `filesystem`."""
    installation.add_scripted("files", FILE_ROLES, tools=FILE_TOOLS, annotations="filesystem")
    installation.rules += [*rules, rule("nothing", "deny", tool=["no_such_tool"])]
    workspace = installation.workspace
    (workspace / "a.txt").write_text("a")
    (workspace / "sub").mkdir()
    (workspace / "to-etc").symlink_to("/etc")
    (workspace / "dangling").symlink_to(installation.root / "outside" / "new")
    (workspace / "alias.txt").symlink_to("a.txt")
    (installation.root / "outside").mkdir()
    (installation.home / ".ssh").mkdir()
    (installation.home / ".ssh/id_ed25519").write_text("key")
    return installation


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """One furnished installation, which every test leaves as it is."""
    installation = furnish(Installation(tmp_path_factory.mktemp("files")))
    agent = installation.start()
    yield installation, agent
    installation.end()


def forwarded(result: Message) -> Json:
    """The arguments that reached the server."""
    return at(orjson.loads(text(result)), "arguments")


@pytest.mark.requirement("C-22", "C-26")
@pytest.mark.parametrize(
    ("spelling", "sent"), table("e2e/paths.a_path_in_the_workspace_goes_out", list[tuple[str, str]])
)
def test_a_path_in_the_workspace_goes_out_in_its_absolute_spelling(
    spelling: str, sent: str, files: Files
) -> None:
    """G4, G24."""
    installation, agent = files
    result = agent.call("read_file", {"path": spelling.format(w=installation.workspace)})
    assert forwarded(result) == {"path": sent.format(w=installation.workspace)}
    assert installation.last_decision() == ("allow", "structural-sandbox-allow")


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param("/etc/passwd", id="outside"),
        pytest.param("file:///etc/passwd", id="G4: a file URL"),
        pytest.param(" /etc/passwd", id="G4: a leading blank"),
        pytest.param("\t/etc/passwd", id="a leading tab"),
        pytest.param("../../../../../../etc/passwd", id="dots"),
        pytest.param("{w}/../../../../../../../../etc/passwd", id="dots behind the workspace"),
        pytest.param("{w}/to-etc/passwd", id="a link to outside"),
        pytest.param("{w}/to-etc/" + "d/" * 70 + "x", id="G3: many missing parts behind a link"),
        pytest.param("{w}/to-etc/a/b/c", id="three missing parts behind a link"),
        pytest.param("{w}/dangling", id="G2: a dangling link"),
        pytest.param("{w}/dangling/x", id="below a dangling link"),
        pytest.param("{w}-other/a.txt", id="a sibling with the same beginning"),
        pytest.param("/proc/self/root/etc/passwd", id="the root of a process"),
        pytest.param("/proc/self/cwd/a.txt", id="the directory of a process"),
        pytest.param("/dev/fd/0", id="a descriptor"),
        pytest.param("~/.ssh/id_ed25519", id="a key"),
        pytest.param("~root/x", id="somebody's home"),
        pytest.param("{w}/a\x00.txt", id="NUL"),
        pytest.param("{w}\u2215..\u2215..\u2215etc", id="a look-alike of a slash"),
        pytest.param("file://host/etc/passwd", id="a file URL with a host"),
        pytest.param("{w}/" + "a/" * 3000, id="too long"),
    ],
)
def test_a_path_that_leads_elsewhere_or_nowhere_is_not_sent(spelling: str, files: Files) -> None:
    """G2, G3, G4."""
    installation, agent = files
    before = len(installation.received("files"))
    result = agent.call("read_file", {"path": spelling.format(w=installation.workspace)})
    assert result["isError"] is True
    assert len(installation.received("files")) == before
    assert installation.last_decision()[0] == "deny"


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param('["{w}/a.txt",["/etc/passwd"]]', id="an array in the array"),
        pytest.param('["{w}/a.txt",{{"path":"/etc/passwd"}}]', id="an object in the array"),
        pytest.param('["{w}/a.txt",null]', id="null in the array"),
        pytest.param('["{w}/a.txt",5]', id="a number in the array"),
        pytest.param('["{w}/a.txt","/etc/passwd"]', id="one good, one bad"),
        pytest.param('{{"path":"/etc/passwd"}}', id="an object"),
        pytest.param("7", id="a number"),
        pytest.param("null", id="null"),
    ],
)
def test_what_hides_among_paths_is_not_sent(paths: str, files: Files) -> None:
    """G5."""
    installation, agent = files
    before = len(installation.received("files"))
    given = orjson.loads(paths.format(w=installation.workspace))
    result = agent.call("read_many", {"paths": given})
    assert result["isError"] is True
    assert len(installation.received("files")) == before


@pytest.mark.parametrize("tool_name", ["read_file", "move_file", "write_file"])
def test_a_required_argument_that_is_missing_is_not_sent(tool_name: str, files: Files) -> None:
    """G5."""
    installation, agent = files
    before = len(installation.received("files"))
    result = agent.call(tool_name, {})
    assert result["isError"] is True
    assert installation.last_decision() == ("deny", "invalid-arguments")
    assert len(installation.received("files")) == before


def test_a_list_of_good_paths_is_sent_in_its_order(files: Files) -> None:
    installation, agent = files
    result = agent.call("read_many", {"paths": ["sub/x", str(installation.workspace / "a.txt")]})
    workspace = str(installation.workspace)
    assert forwarded(result) == {"paths": [f"{workspace}/sub/x", f"{workspace}/a.txt"]}


def test_a_link_is_sent_as_it_is_written_not_as_what_it_leads_to(files: Files) -> None:
    """G24."""
    installation, agent = files
    given: Message = {
        "source": str(installation.workspace / "alias.txt"),
        "destination": str(installation.workspace / "sub/b.txt"),
    }
    assert forwarded(agent.call("move_file", given)) == given


def test_text_that_is_no_path_is_sent_as_it_came(files: Files) -> None:
    installation, agent = files
    content = f" ~ file:///etc {installation.workspace}/../x \u00e9\r\n"
    result = agent.call("write_file", {"path": "new.txt", "content": content})
    assert at(forwarded(result), "content") == content


def own_policy(installation: Installation) -> Path:
    return installation.generated / "compiled-policy.json"


def own_audit(installation: Installation) -> Path:
    return installation.audit


def own_audit_head(installation: Installation) -> Path:
    return installation.audit.with_name(installation.audit.name + ".head")


def own_log(installation: Installation) -> Path:
    return installation.session_log


def own_state(installation: Installation) -> Path:
    return installation.home / ".ironcurtain/config.json"


def ssh_key(installation: Installation) -> Path:
    return installation.home / ".ssh/id_ed25519"


def named(installation: Installation) -> Path:
    return installation.root / "outside/secret"


@pytest.mark.requirement("C-20")
@pytest.mark.parametrize(
    "place", [own_policy, own_audit, own_audit_head, own_log, own_state, ssh_key, named]
)
@pytest.mark.parametrize("way", ["by its name", "by a link"])
def test_no_rule_opens_a_protected_path(
    place: Callable[[Installation], Path], way: str, opened: Files
) -> None:
    installation, agent = opened
    path = place(installation)
    if way == "by a link":
        alias = installation.workspace / f"link-{path.name}"
        if not os.path.lexists(alias):
            alias.symlink_to(path)
        path = alias
    for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
        result = agent.call(name, {"path": str(path), **more})
        assert text(result).startswith("DENIED: Access to protected path is forbidden")
        assert installation.last_decision() == ("deny", "structural-protected-path")


@pytest.mark.requirement("C-20")
@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".git/config", ".claude/settings.json"])
def test_what_steers_git_or_an_agent_is_not_written_anywhere(name: str, opened: Files) -> None:
    installation, agent = opened
    result = agent.call("write_file", {"path": str(installation.workspace / name), "content": "x"})
    assert installation.last_decision() == ("deny", "structural-protected-path")
    assert result["isError"] is True
    assert forwarded(agent.call("read_file", {"path": str(installation.workspace / name)}))


def test_a_rule_within_the_root_means_everywhere(opened: Files) -> None:
    """G22."""
    installation, agent = opened
    assert forwarded(agent.call("read_file", {"path": "/etc/hosts"})) == {"path": "/etc/hosts"}
    assert installation.last_decision() == ("allow", "anything")


@pytest.mark.requirement("C-23", "C-27", "C-28")
def test_moving_out_of_the_workspace_asks_for_the_destination_alone(
    installation: Installation,
) -> None:
    outside = str(installation.root / "outside")
    furnish(
        installation,
        rule(
            "write-outside",
            "escalate",
            "outside",
            paths={"roles": ["write-path"], "within": outside},
        ),
    )
    agent = installation.start()
    given: Message = {"source": "a.txt", "destination": f"{outside}/a.txt"}
    assert text(agent.call("move_file", given), 1).startswith("ESCALATION REQUIRED: outside.")
    assert installation.last_decision() == ("escalate", "write-outside")
    assert installation.received("files") == []


def test_the_agents_own_name_for_the_workspace_is_understood(installation: Installation) -> None:
    agent = furnish(installation).start(CONTAINER_WORKSPACE_DIR="/workspace")
    sent = forwarded(agent.call("read_file", {"path": "/workspace/a.txt"}))
    assert sent == {"path": str(installation.workspace / "a.txt")}
    assert agent.call("read_file", {"path": "/workspaces/a.txt"})["isError"] is True


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """An installation in which one rule allows everything everywhere."""
    installation = Installation(tmp_path_factory.mktemp("opened"))
    installation.variables["PROTECTED_PATHS"] = orjson.dumps(
        [str(installation.root / "outside/secret")]
    ).decode()
    roles: list[Json] = ["read-path", "write-path", "delete-path"]
    furnish(installation, rule("anything", paths={"roles": roles, "within": "/"}))
    agent = installation.start()
    yield installation, agent
    installation.end()
