"""`init` puts hooks into the clients that are there, beside other people's, and takes them out."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.hooks.dialects import DIALECTS
from tests import program
from tests.cli.test_init import Machine
from tests.program import PROXY

THEIRS = (
    '{"hooks": {"PreToolUse": [{"matcher":"Bash","hooks":[{"type":"command",'
    '"command":"theirs"}]}]},\n  "model": "opus"}'
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    (found.home / ".claude").mkdir()
    (found.home / ".claude/settings.json").write_text(THEIRS)
    return found


def hooks(machine: Machine, name: str = ".claude/settings.json") -> list[str]:
    document = orjson.loads((machine.home / name).read_bytes())
    return [str(one) for one in document["hooks"]["PreToolUse"]]


def test_a_user_without_any_server_gets_hooks_until_it_is_undone(machine: Machine) -> None:
    before = machine.files()
    code, said, faults = machine.run("--dry-run")
    assert code == 0, faults
    assert "claude: hooks in ~/.claude/settings.json would put" in said
    assert machine.files() == before
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert "would put" not in said
    first, second = hooks(machine)
    assert "stub.py" in first
    assert "theirs" in second
    policy = machine.home / ".ironcurtain/generated/compiled-policy.json"
    assert orjson.loads(policy.read_bytes())["commandServers"] == ["shell"]
    code, said, _ = machine.run("--yes")
    assert "would put" not in said
    assert len(hooks(machine)) == 2
    code, said, _ = machine.run("--undo")
    assert code == 0
    assert "claude: its hooks are restored" in said
    assert (machine.home / ".claude/settings.json").read_text() == THEIRS
    assert "nothing to undo" in machine.run("--undo")[1]


def test_each_client_that_is_there_is_offered_hooks_and_none_that_is_not(machine: Machine) -> None:
    there = [one for one in DIALECTS.values() if one.client not in {"claude", "gemini"}]
    for one in there:
        (machine.home / one.places.directory).mkdir(parents=True)
    before = machine.files()
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    for one in there:
        file = machine.home / one.places.directory / one.places.file
        assert f"{one.client}: its hooks are in ~/{one.places.directory}/{one.places.file}" in said
        assert all(event in file.read_text() for event in one.events)
    assert "accept them in its /hooks" in said
    assert not (machine.home / ".gemini").exists()
    assert machine.run("--undo")[0] == 0
    assert {name: text for name, text in machine.files().items() if name in before} == before
    assert not any(
        (machine.home / one.places.directory / one.places.file).exists() for one in there
    )


def test_claude_code_is_offered_hooks_before_its_first_session(tmp_path: Path) -> None:
    found = Machine(tmp_path)
    (found.home / ".claude.json").write_text('{"mcpServers": {}}')
    assert "hooks in ~/.claude/settings.json would" in found.run("--dry-run")[1]
    code, said, faults = found.run("--yes")
    assert code == 0, said + faults
    assert len(hooks(found)) == 1


def test_servers_and_hooks_of_one_run_go_byte_for_byte_and_a_later_run_keeps_both(
    machine: Machine,
) -> None:
    gemini = machine.home / ".gemini/settings.json"
    gemini.parent.mkdir()
    gemini.write_bytes(orjson.dumps({"mcpServers": {"files": machine.server("files")}}))
    before = gemini.read_bytes()
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    document = orjson.loads(gemini.read_bytes())
    assert document["mcpServers"].keys() == {"ironcurtain"}
    assert "BeforeTool" in document["hooks"]
    # Another server later: the files are written anew, and still know the clients' tools.
    machine.give_cursor(pages=machine.server("fetch"))
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    policy = machine.home / ".ironcurtain/generated/compiled-policy.json"
    assert "shell" in orjson.loads(policy.read_bytes())["commandServers"]
    assert machine.run("--undo")[0] == 0
    assert gemini.read_bytes() == before
    assert (machine.home / ".claude/settings.json").read_text() == THEIRS


def test_a_file_that_is_no_json_stays_and_a_client_that_is_not_there_gets_none(
    machine: Machine,
) -> None:
    (machine.home / ".claude/settings.json").write_text("{ // mine")
    code, _, faults = machine.run("--yes")
    assert code == 2
    assert "no server to protect was found" in faults
    assert (machine.home / ".claude/settings.json").read_text() == "{ // mine"
    assert not (machine.home / ".gemini").exists()


def test_files_of_ours_that_somebody_changed_are_the_reason_that_init_ends_with(
    machine: Machine,
) -> None:
    machine.give_cursor(files=machine.server("files"))
    assert machine.run("--yes")[0] == 0
    annotations = machine.home / ".ironcurtain/generated/tool-annotations.json"
    document = orjson.loads(annotations.read_bytes())
    del document["servers"]["shell"]
    annotations.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    assert machine.run("--undo")[0] == 0
    # Somebody has written into a file of ours: the reason is said, and what helps.
    code, said, faults = machine.run("--yes")
    assert code == 1, said + faults
    ending = said.partition("NOT protected:")[2]
    assert "files of ours hold what init did not write" in ending
    assert "run init again with --force" in ending
    assert machine.run("--yes", "--force")[0] == 0
    assert machine.run("--undo")[0] == 0


def test_a_path_that_leads_nowhere_is_to_be_corrected_and_not_installed(machine: Machine) -> None:
    machine.give_cursor(files={"command": "/not/there/server"})
    said = machine.run("--yes")[1]
    assert "next: correct its path, and run init again" in said
    assert "install /not" not in said


def test_who_installs_what_a_server_lacked_runs_init_again_without_force(machine: Machine) -> None:
    machine.give_cursor(files={"command": "not-there-yet"})
    code, said, _ = machine.run("--yes")
    assert code == 1
    assert "next: install not-there-yet, and run init again" in said
    assert "ironcurtain-proxy review" not in said, "nothing would be asked"
    assert hooks(machine), "its own shell is under the policy already"
    machine.give_cursor(files=machine.server("files"))
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert "The server is protected." in said


def test_hooks_that_were_installed_first_are_no_reason_to_force_init(machine: Machine) -> None:
    words = [*PROXY, "hooks", "install", "claude", "--workspace", str(machine.workspace)]
    done = program.run(words, machine.environ, machine.workspace)
    assert done.returncode == 0, done.stderr
    machine.give_cursor(files=machine.server("files"))
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    policy = machine.home / ".ironcurtain/generated/compiled-policy.json"
    assert orjson.loads(policy.read_bytes())["commandServers"] == ["shell"]


def test_what_hooks_install_added_is_known_to_the_next_init(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    # A client without hooks, so that init itself adds nothing for them.
    code_file = machine.home / ".config/Code/User/mcp.json"
    code_file.parent.mkdir(parents=True)
    code_file.write_bytes(orjson.dumps({"servers": {"files": machine.server("files")}}))
    assert machine.run("--yes")[0] == 0
    words = [*PROXY, "hooks", "install", "gemini", "--workspace", str(machine.workspace)]
    done = program.run(words, machine.environ, machine.workspace)
    assert "wrote " in done.stdout, done.stderr
    assert "doctor" not in done.stdout
    words[words.index("gemini")] = "claude"
    done = program.run(words, machine.environ, machine.workspace)
    assert "`ironcurtain-proxy doctor` says whether its commands run in a sandbox." in done.stdout
    assert "its dialog does not ask for us: only a reviewer approves there" in done.stdout
    assert program.run([*PROXY, "hooks", "remove", "claude"], machine.environ).returncode == 0
    assert machine.run("--undo")[0] == 0
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
