"""`doctor` on machines that lack one thing at a time."""

import errno
import os
import pty
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli import doctor
from ironcurtain_proxy.cli.doctor import CheckResult, clock_against_file, kernel, sandbox, user
from ironcurtain_proxy.sandbox.probe import Available, Missing, Unavailable, probe
from tests import program
from tests.program import PATIENCE, PROXY

ROOT = Path(__file__).parents[2]
PROGRAMS = {"node": "node", "srt": "srt", "bubblewrap": "bwrap", "socat": "socat", "ripgrep": "rg"}
DOCTOR = [*PROXY, "doctor"]


class Machine:
    """A home and a `PATH` of their own. Its srt runs nothing, and says that it was confined."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.bin = root / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        for name in PROGRAMS.values():
            self.install(name)
        self.install("srt", "echo confined")

    def install(self, program: str, script: str = "exit 0") -> None:
        file = self.bin / program
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def configure(self, servers: Mapping[str, object], policy: str = "warn") -> Path:
        file = self.home / "config.json"
        document = {"mcpServers": servers, "sandboxPolicy": policy, "allowedDirectory": "work"}
        (self.home / "work").mkdir(exist_ok=True)
        file.write_bytes(orjson.dumps(document))
        return file

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": str(self.bin)}

    def doctor(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **more}
        return program.run([*DOCTOR, *args], environment)

    def checks(self, *args: str, **more: str) -> dict[str, CheckResult]:
        listed = orjson.loads(self.doctor("--json", *args, **more).stdout)
        found = {fields["name"]: CheckResult(**fields) for fields in listed}
        # Of whoever runs the tests, not of the machine.
        assert found.pop("user") == user(os.geteuid())
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_has_everything_is_healthy(machine: Machine) -> None:
    machine.install("server")
    result = machine.doctor("--config", str(machine.configure({"s": {"command": "server"}})))
    assert result.returncode == 0
    assert result.stderr == ""
    *lines, summary = result.stdout.splitlines()
    other = [line for line in lines if line.split()[1] != "user"]
    assert [line for line in other if not line.startswith("ok    ")] == []
    assert f"ok    bubblewrap       {machine.bin / 'bwrap'}" in lines
    warned = "1 warning" if os.geteuid() == 0 else "0 warnings"
    assert summary == f"{len(lines)} checks: 0 failures, {warned}"


def test_root_is_told_what_its_sandboxes_do_not_do() -> None:
    assert (user(0).state, user(1000).state) == ("warn", "ok")
    assert "ordinary user" in user(0).found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_program_fails_where_the_sandbox_is_enforced(machine: Machine, name: str) -> None:
    machine.install("server")
    config = machine.configure({"s": {"command": "server"}}, "enforce")
    assert machine.doctor("--config", str(config)).returncode == 0
    (machine.bin / PROGRAMS[name]).unlink()
    result = machine.doctor("--config", str(config))
    assert result.returncode == 1
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAIL  ")]
    assert [line.split("  ")[1] for line in failed] == [name, "sandbox"]
    assert "not found: " in failed[0]
    assert failed[1].endswith(f"not tried: first install {name}")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("policy", "confined"), [("warn", True), ("enforce", False)], ids=["warned", "opted out"]
)
def test_a_missing_program_is_a_warning_where_nothing_needs_it(
    machine: Machine, name: str, policy: str, confined: bool
) -> None:
    machine.install("server")
    config = machine.configure({"s": {"command": "server", "sandbox": confined or False}}, policy)
    (machine.bin / PROGRAMS[name]).unlink()
    checks = machine.checks("--config", str(config))
    assert {n for n, check in checks.items() if check.state == "warn"} == {name, "sandbox"}
    assert machine.doctor("--config", str(config)).returncode == 0


def test_a_sandbox_that_does_not_run_fails_though_all_programs_are_there(machine: Machine) -> None:
    machine.install("srt", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    machine.install("server")
    config = machine.configure({"s": {"command": "server"}}, "enforce")
    check = machine.checks("--config", str(config))["sandbox"]
    assert check.state == "fail"
    assert "No permissions to create new namespace" in check.found
    assert check.remedy


def test_a_real_sandbox_runs(tmp_path: Path) -> None:
    path = f"{ROOT / 'node_modules/.bin'}:{os.environ['PATH']}"
    probed = probe({**os.environ, "PATH": path})
    if isinstance(probed, Unavailable):
        reason = ", ".join(f"{one.name} {one.why}" for one in probed.missing)
        if os.environ.get("REQUIRE_SANDBOX") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    machine = Machine(tmp_path)
    for name in (*PROGRAMS.values(), "sh", "bash", "ls", "wc", "which"):
        (machine.bin / name).unlink(missing_ok=True)
        (machine.bin / name).symlink_to(shutil.which(name, path=path) or "/nonexistent")
    check = machine.checks()["sandbox"]
    assert check.state == "ok", check.found


def test_a_server_whose_command_is_missing_is_named(machine: Machine) -> None:
    config = machine.configure({"there": {"command": "socat"}, "gone": {"command": "gone-server"}})
    checks = machine.checks("--config", str(config))
    assert checks["server there"].state == "ok"
    assert checks["server gone"].state == "fail"
    assert checks["server gone"].found == "gone-server not found"


def test_a_servers_command_is_looked_for_on_its_own_path(machine: Machine, tmp_path: Path) -> None:
    machine.install("server")
    server = {"command": "server", "env": {"PATH": str(tmp_path)}}
    config = str(machine.configure({"s": server}))
    assert machine.checks("--config", config)["server s"].state == "fail"
    (tmp_path / "server").symlink_to(machine.bin / "server")
    assert machine.checks("--config", config)["server s"].state == "ok"


def test_a_relative_command_is_looked_for_from_the_servers_directory(machine: Machine) -> None:
    server = {"command": "./server", "cwd": str(machine.bin)}
    config = str(machine.configure({"s": server}))
    assert machine.checks("--config", config)["server s"].state == "fail"
    machine.install("server")
    assert machine.checks("--config", config)["server s"].state == "ok"


def test_a_launcher_in_a_sandbox_is_a_warning_with_its_installation(machine: Machine) -> None:
    machine.install("npx")
    server = {"command": "npx", "args": ["-y", "some-server@1.0.0", "/tmp"]}
    config = machine.configure({"in": server, "out": {**server, "sandbox": False}})
    checks = machine.checks("--config", str(config))
    assert checks["server in"].state == "warn"
    assert checks["server in"].remedy == "npm install -g some-server@1.0.0"
    assert checks["server out"].state == "ok"


def test_a_container_is_a_warning_unless_its_entry_trusts_it(machine: Machine) -> None:
    machine.install("docker")
    server = {"command": "docker", "args": ["run", "-i", "--rm", "mcp/time"]}
    config = machine.configure({"in": server, "out": {**server, "sandbox": False}})
    checks = machine.checks("--config", str(config))
    assert checks["server in"].state == "warn"
    assert "a container of mcp/time" in checks["server in"].found
    assert '"sandbox": false' in checks["server in"].remedy
    assert checks["server out"].state == "ok"


def test_a_launcher_is_shown_with_the_program_that_is_installed(machine: Machine) -> None:
    package = machine.home / "node_modules" / "some-server"
    package.mkdir(parents=True)
    manifest = {"name": "some-server", "version": "1.0.0", "bin": "run.js"}
    (package / "package.json").write_bytes(orjson.dumps(manifest))
    (package / "run.js").write_text("#!/usr/bin/env node")
    (package / "run.js").chmod(0o755)
    servers = {
        "same": {"command": "npx", "args": ["-y", "some-server@1.0.0", "/tmp"]},
        "other": {"command": "npx", "args": ["-y", "some-server@1.0.1", "/tmp"]},
    }
    config = str(machine.configure(servers))
    checks = machine.checks("--config", config)
    assert checks["server same"].state == "ok"
    assert f"{package}/run.js" in checks["server same"].found
    assert checks["server other"].state == "fail"  # there is no npx
    machine.install("npx")
    other = machine.checks("--config", config)["server other"]
    assert other.state == "warn"
    assert "version 1.0.0 is installed" in other.found
    assert other.remedy == "npm install -g some-server@1.0.1"


def test_a_reviewer_that_could_not_be_asked_is_named(machine: Machine, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o644)
    machine.install("manager")
    reviewers = [
        {"name": "architect_manager", "kind": "process", "command": ["manager"]},
        {"name": "wrapper_claude", "kind": "process", "command": ["absent"]},
        {"name": "by_script", "kind": "process", "command": ["manager", "-u", f"{tmp_path}/no.py"]},
        {
            "name": "desk",
            "kind": "session",
            "session_type": "architect",
            "mailbox": str(tmp_path / "mail"),
            "token_file": str(token),
        },
        {"name": "claude_code_high_level", "kind": "model", "modelId": "openai:gpt-5"},
    ]
    file = machine.home / "config.json"
    section = {"enabled": True, "reviewers": reviewers}
    file.write_bytes(orjson.dumps({"mcpServers": {}, "auto_confirm": section}))
    done = machine.doctor("--config", str(file), "--json")
    assert done.returncode == 1
    found = {one["name"]: one for one in orjson.loads(done.stdout)}
    assert found["reviewer architect_manager"]["state"] == "ok"
    assert found["reviewer wrapper_claude"]["found"] == "absent not found"
    assert found["reviewer by_script"]["state"] == "warn"
    assert f"{tmp_path}/no.py does not exist" in found["reviewer by_script"]["found"]
    assert "chmod 600" in found["reviewer desk"]["found"]
    assert found["reviewer claude_code_high_level"]["found"] == "no API key for openai"


def test_a_broken_configuration_is_counted_and_sent_to_check(machine: Machine) -> None:
    config = machine.home / "my config.json"
    config.write_text('{"sandboxPolicy": "perhaps", "mcpServers": {}, "unknown": 1}')
    check = machine.checks("--config", str(config))["configuration"]
    assert check.state == "fail"
    assert check.found == f"{config}, 2 errors, 0 warnings"
    assert check.remedy == f"ironcurtain-proxy check --config '{config}'"
    assert machine.doctor("--config", str(config)).returncode == 1


def test_without_any_configuration_the_configuration_alone_fails(machine: Machine) -> None:
    assert machine.doctor().returncode == 1
    failed = {name for name, check in machine.checks().items() if check.state == "fail"}
    assert failed == {"configuration"}


def test_a_launcher_that_cannot_be_confined_fails_where_the_sandbox_is_enforced(
    machine: Machine,
) -> None:
    machine.install("npx")
    server = {"command": "npx", "args": ["-y", "some-server@1.0"]}
    config = machine.configure({"in": server}, "enforce")
    assert machine.checks("--config", str(config))["server in"].state == "fail"
    assert machine.doctor("--config", str(config)).returncode == 1


@pytest.mark.parametrize(
    ("name", "variable"), [("audit log", "AUDIT_LOG_PATH"), ("mailbox", "ESCALATION_DIR")]
)
def test_a_place_that_cannot_be_written_to_fails(
    machine: Machine, name: str, variable: str
) -> None:
    machine.install("server")
    config = str(machine.configure({"s": {"command": "server"}}))
    checks = machine.checks("--config", config, **{variable: "/proc/nowhere/file"})
    assert {n for n, check in checks.items() if check.state == "fail"} == {name}


def test_a_state_directory_that_is_a_file_fails(machine: Machine) -> None:
    (machine.home / ".ironcurtain").write_text("")
    assert machine.checks()["state directory"].state == "fail"
    assert machine.doctor().returncode == 1


def test_a_disk_with_less_space_than_the_points_may_take_is_a_warning(machine: Machine) -> None:
    file = machine.configure({})
    document = orjson.loads(file.read_bytes())
    assert "timeline" not in machine.checks("--config", str(file))
    for most, state in ((1 << 20, "ok"), (1 << 50, "warn")):
        document["containment"] = {"undo": True, "max_bytes": most}
        file.write_bytes(orjson.dumps(document))
        found = machine.checks("--config", str(file))["timeline"]
        assert found.state == state
        assert "MiB free for points of rollback" in found.found
        is_told = "1,073,741,824 MiB (containment.max_bytes)" in found.found
        assert is_told == (state == "warn")


def test_nothing_is_left_behind(machine: Machine) -> None:
    before = sorted(machine.home.rglob("*"))
    machine.doctor()
    assert sorted(machine.home.rglob("*")) == before


@pytest.mark.parametrize(("more", "colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_a_terminal_that_wants_it(
    machine: Machine, more: dict[str, str], colour: bool
) -> None:
    machine.install("server")
    config = str(machine.configure({"s": {"command": "server"}}))
    command = [*DOCTOR, "--config", config]
    assert (b"\x1b[" in _on_terminal(command, {**machine.environment, **more})) is colour
    assert "\x1b[" not in machine.doctor().stdout


def _on_terminal(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(timeout=PATIENCE) == 0
    return seen


@pytest.mark.parametrize(
    ("file", "value", "name", "setting"),
    [
        ("user/max_user_namespaces", "0", "user namespaces", "user.max_user_namespaces="),
        ("kernel/unprivileged_userns_clone", "0", "user namespaces", "userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "apparmor", "unprivileged_userns=0"),
    ],
)
def test_a_kernel_that_forbids_namespaces_is_found_unless_a_sandbox_ran(
    tmp_path: Path, file: str, value: str, name: str, setting: str
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(f"{value}\n")
    bad = [check for check in kernel(tmp_path, "fail", sandbox_ran=False) if check.state != "ok"]
    assert [(check.name, check.state) for check in bad] == [(name, "fail")]
    assert setting in bad[0].remedy
    assert {check.state for check in kernel(tmp_path, "fail", sandbox_ran=True)} == {"ok"}


def test_a_kernel_that_says_nothing_forbids_nothing(tmp_path: Path) -> None:
    assert {check.state for check in kernel(tmp_path, "fail", sandbox_ran=False)} == {"ok"}


def test_why_a_sandbox_did_not_run_comes_before_what_was_not_installed() -> None:
    missing = (Missing("node", "not found", "a"), Missing("user namespaces", "off", "b"))
    assert sandbox(Unavailable(missing), "warn") == CheckResult("sandbox", "warn", "off", "b")
    assert sandbox(Available(("srt",)), "warn").state == "ok"


def test_a_clock_that_differs_from_the_file_systems_is_a_warning() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert clock_against_file(now, now.timestamp() - 4).state == "ok"
    assert clock_against_file(now, (now + timedelta(seconds=60)).timestamp()).state == "warn"


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "make space"), (errno.EACCES, "that you may write to")]
)
def test_a_full_disk_is_not_mended_by_rights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, remedy: str
) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    result = doctor._writable("state directory", tmp_path / "state")
    assert (result.state, os.strerror(number) in result.found) == ("fail", True)
    assert remedy in result.remedy
