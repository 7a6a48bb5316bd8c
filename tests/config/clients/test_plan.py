"""Servers of several clients stand side by side behind the proxy."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.clients.finding import ClientFile, find
from ironcurtain_proxy.config.clients.plan import (
    OwnStart,
    changes,
    movings,
    origin_of,
    servers_behind_proxy,
    startable,
)
from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.servers.servers_file import parse_servers
from ironcurtain_proxy.model.values import Json
from tests.tables import table

START = OwnStart(command="/p", args=("serve",), workspace="/w")
A: dict[str, Json] = {"command": "npx", "args": ["a"]}
B: dict[str, Json] = {"command": "npx", "args": ["b"]}


def cursor(home: Path, **servers: Json) -> None:
    _write(home / ".cursor/mcp.json", {"mcpServers": {**servers}})


def vscode(home: Path, **servers: Json) -> None:
    _write(home / ".config/Code/User/mcp.json", {"servers": {**servers}})


def _write(file: Path, document: Json) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def files(home: Path) -> tuple[ClientFile, ...]:
    return find(home, home / "project", {}).files


def env_of(text: str, *place: str) -> dict[str, str]:
    there = orjson.loads(text)
    for key in place:
        there = there[key]
    (name,) = [one for one in there if one.startswith("ironcurtain")]
    there = there[name]["env"]
    return {str(key): str(value) for key, value in there.items()}


def test_each_client_keeps_to_its_own_servers(tmp_path: Path) -> None:
    cursor(tmp_path, same=A, own=B)
    vscode(tmp_path, same=A, other=A)
    moving = movings(files(tmp_path), {}, {})
    assert [one.name for one in moving] == ["same", "own", "same", "other"]
    changed, _ = changes(moving, START)
    assert env_of(changed[0].after, "mcpServers") == {"SERVER_FILTER": "same,own"}
    assert env_of(changed[1].after, "servers") == {"SERVER_FILTER": "same,other"}


def test_two_servers_of_one_name_get_two_names(tmp_path: Path) -> None:
    cursor(tmp_path, db=A)
    vscode(tmp_path, db=B)
    moving = movings(files(tmp_path), {}, {})
    assert [one.name for one in moving] == ["db", "db-vscode"]
    assert servers_behind_proxy(moving, {}) == {"db": A, "db-vscode": B}


def test_a_server_that_is_behind_the_proxy_already_keeps_its_entry(tmp_path: Path) -> None:
    cursor(tmp_path, db=A)
    present: dict[str, dict[str, Json]] = {"db": {**A, "cwd": "@workspace"}}
    moving = movings(files(tmp_path), present, {"db": origin_of(A)})
    assert [one.name for one in moving] == ["db"]
    assert servers_behind_proxy(moving, present) == present


def test_a_name_whose_tools_could_be_taken_for_those_of_another_is_changed(tmp_path: Path) -> None:
    cursor(tmp_path, a=A, a__b=B, a_=B)
    names = [one.name for one in movings(files(tmp_path), {}, {})]
    assert names == ["a", "a-b", "a-cursor"]


def test_what_only_the_client_can_fill_in_stays_with_it(tmp_path: Path) -> None:
    entry: dict[str, Json] = {**A, "env": {"TOKEN": "${input:t}", "USER_NAME": "me"}}
    vscode(tmp_path, github=entry)
    moving = movings(files(tmp_path), {}, {})
    entries = servers_behind_proxy(moving, {})
    assert entries["github"]["env"] == {"USER_NAME": "me"}
    assert startable(moving, entries, {})["github"]["env"] == entry["env"]
    (changed,), _ = changes(moving, START)
    env = env_of(changed.after, "servers")
    name = "IRONCURTAIN_SECRET_GITHUB_TOKEN"
    assert orjson.loads(env["SERVER_CREDENTIALS"]) == {"github": {"TOKEN": {"from": name}}}
    assert env[name] == "${input:t}"


def test_secrets_of_two_servers_never_share_a_variable(tmp_path: Path) -> None:
    first: dict[str, Json] = {**A, "env": {"B_C": "${input:x}"}}
    second: dict[str, Json] = {**B, "env": {"C": "${input:y}"}}
    vscode(tmp_path, **{"a": first, "a.b": second})
    (changed,), _ = changes(movings(files(tmp_path), {}, {}), START)
    env = env_of(changed.after, "servers")
    found = orjson.loads(env["SERVER_CREDENTIALS"])
    assert env[found["a"]["B_C"]["from"]] == "${input:x}"
    assert env[found["a.b"]["C"]["from"]] == "${input:y}"


def test_variables_of_this_environment_help_to_read_the_tools(tmp_path: Path) -> None:
    cursor(tmp_path, github={**A, "env": {"T": "${env:SET}", "U": "${UNSET:-fallback}"}})
    moving = movings(files(tmp_path), {}, {})
    started = startable(moving, servers_behind_proxy(moving, {}), {"SET": "secret"})
    assert started["github"]["env"] == {"T": "secret", "U": "fallback"}
    assert "env" not in servers_behind_proxy(moving, {})["github"]


def test_a_server_that_does_not_answer_stays_in_its_file(tmp_path: Path) -> None:
    cursor(tmp_path, good=A, silent=B)
    (changed,), _ = changes(movings(files(tmp_path), {}, {}), START, {"silent"})
    assert orjson.loads(changed.after)["mcpServers"]["silent"] == B
    assert changed.servers == ("good",)


def test_a_file_of_a_project_names_its_workspace(tmp_path: Path) -> None:
    _write(tmp_path / "project/.cursor/mcp.json", {"mcpServers": {"a": A}})
    (changed,), _ = changes(movings(files(tmp_path), {}, {}), START)
    assert env_of(changed.after, "mcpServers")["ALLOWED_DIRECTORY"] == "/w"


def test_the_files_of_one_client_get_entries_of_different_names(tmp_path: Path) -> None:
    _write(tmp_path / ".claude.json", {
        "mcpServers": {"a": A},
        "projects": {str(tmp_path / "project"): {"mcpServers": {"b": B}}},
    })  # fmt: skip
    _write(tmp_path / "project/.mcp.json", {"mcpServers": {"c": A}})
    done, _ = changes(movings(files(tmp_path), {}, {}), START)
    names = [move.name for one in done for move in one.moves]
    assert sorted(names) == ["ironcurtain", "ironcurtain-local", "ironcurtain-project"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"servers": {"a": A}}, 'has its servers in "servers", and Cursor reads "mcpServers"'),
        ({"context_servers": {"a": A}}, 'has its servers in "context_servers"'),
        ({"a": A, "b": {"url": "https://x.example/mcp"}}, "is itself a table of servers"),
    ],
)
def test_a_file_with_its_servers_where_the_client_reads_none_is_named(
    tmp_path: Path, document: Json, said: str
) -> None:
    _write(tmp_path / ".cursor/mcp.json", document)
    (one,) = find(tmp_path, tmp_path / "project", {}).unusable
    assert said in one.why


def test_a_sandbox_in_the_users_own_file_is_taken_and_not_in_a_projects(tmp_path: Path) -> None:
    opened: Json = {"filesystem": {"allowWrite": ["~/x"]}}
    for sandbox in (opened, False):
        cursor(tmp_path, own={**A, "sandbox": sandbox})
        _write(
            tmp_path / "project/.mcp.json", {"mcpServers": {"theirs": {**B, "sandbox": sandbox}}}
        )
        own, theirs = sorted(movings(files(tmp_path), {}, {}), key=lambda one: one.name)
        assert own.taken.entry["sandbox"] == sandbox
        assert own.taken.unused == ()
        assert "sandbox" not in theirs.taken.entry
        assert theirs.taken.unused == ("sandbox",)


@pytest.mark.parametrize(
    ("name", "behind"),
    table("config/clients/plan.a_name_that_the_proxy_cannot_use", list[tuple[str, str]]),
)
def test_a_name_that_the_proxy_cannot_use_is_changed_and_its_entry_can_be_read(
    tmp_path: Path, name: str, behind: str
) -> None:
    cursor(tmp_path, **{name: A})
    (moving,) = movings(files(tmp_path), {}, {})
    assert (moving.taken.name, moving.name) == (name, behind)
    entries: Json = {behind: {**moving.taken.entry}}
    report = Report()
    parse_servers(DocumentNode(entries, "servers", report), tmp_path)
    assert not report.has_errors


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "x",
        {},
        {"command": ""},
        {"command": ["a"]},
        {"command": "a", "args": "b"},
        {"command": "a", "args": [1]},
        {"command": "a\0"},
        {"command": "a", "env": []},
        {"command": "a", "env": {"A": None}},
        {"command": "a", "env": {"A=B": "c"}},
        {"command": "a", "cwd": 1},
    ],
)
def test_an_entry_that_is_not_understood_stays(tmp_path: Path, entry: Json) -> None:
    cursor(tmp_path, x=entry)
    (file,) = files(tmp_path)
    assert not file.tables[0].taken
    assert "not understood" in file.tables[0].left[0].why


def test_an_entry_of_that_name_which_is_not_the_proxy_stays(tmp_path: Path) -> None:
    cursor(tmp_path, ironcurtain={"url": "https://x"}, a=A)
    (changed,), _ = changes(movings(files(tmp_path), {}, {}), START)
    after = orjson.loads(changed.after)["mcpServers"]
    assert after["ironcurtain"] == {"url": "https://x"}
    assert after["ironcurtain-proxy"]["command"] == "/p"


REMOTE: dict[str, Json] = {"url": "https://x.example/mcp"}


@pytest.mark.parametrize(
    ("entry", "written", "still_open"),
    table(
        "config/clients/plan.a_server_over_the_network_moves",
        list[tuple[dict[str, Json], dict[str, Json], dict[str, str]]],
    ),
)
def test_a_server_over_the_network_moves_and_its_secrets_stay_where_they_are_known(
    tmp_path: Path, entry: dict[str, Json], written: Json, still_open: dict[str, str]
) -> None:
    cursor(tmp_path, far=entry)
    (moving,) = movings(files(tmp_path), {}, {})
    assert moving.taken.entry == written
    assert moving.taken.open_variables == still_open
    ((changed,), _) = changes([moving], START)
    env = orjson.loads(changed.after)["mcpServers"]["ironcurtain"]["env"]
    found = orjson.loads(env.get("SERVER_CREDENTIALS", "{}")).get("far", {})
    assert {key: env[one["from"]] for key, one in found.items()} == still_open


@pytest.mark.parametrize(
    ("entry", "why"),
    table("config/clients/plan.a_server_over_the_network", list[tuple[dict[str, Json], str]]),
)
def test_a_server_over_the_network_that_the_proxy_would_refuse_stays_with_the_reason(
    tmp_path: Path, entry: dict[str, Json], why: str
) -> None:
    cursor(tmp_path, far=entry, a=A)
    (file,) = files(tmp_path)
    (left,) = file.tables[0].left
    assert why in left.why


def test_a_given_file_is_understood_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "any.json"
    _write(file, {"servers": {"a": A}})
    (found,) = find(tmp_path, tmp_path, {}, [file]).files
    assert found.client.id == "vscode"
    assert [one.name for one in found.tables[0].taken] == ["a"]


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"mcpServers": {"a"'])
def test_a_given_file_without_servers_is_said(tmp_path: Path, text: str) -> None:
    file = tmp_path / "any.json"
    file.write_text(text)
    found = find(tmp_path, tmp_path, {}, [file, tmp_path / "missing.json"])
    assert not found.files
    assert [one.path for one in found.unusable] == [file, tmp_path / "missing.json"]


def test_a_project_cannot_lead_init_to_a_file_elsewhere(tmp_path: Path) -> None:
    _write(tmp_path / "other.json", {"mcpServers": {"a": A}})
    link = tmp_path / "project/.mcp.json"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "other.json")
    found = find(tmp_path, tmp_path / "project", {})
    assert not found.files
    assert [(one.path, one.why) for one in found.unusable] == [
        (link, "is a link that leads out of the workspace")
    ]
