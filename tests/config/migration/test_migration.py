"""Configuration files of before `approvalPolicy`, and of before the auto-approver."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.migration import migrate, plan_of, rewrite
from ironcurtain_proxy.config.overlay_settings import migrated_mode
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.model.values import Json
from tests.program import PATIENCE
from tests.tables import table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BACKUP = "config.json.bak-20260102030405"
OFF = {"enabled": False, "modelId": "anthropic:claude-haiku-4-5"}
LEGACY = """{
  "_": "mine",

  "mcpServers": {"a": {"command": "x"}},
  "security": {
    "interceptor": {
      "approvalRequired": true,
      "sensitiveTools": ["a/write"]
    }
  }
}
"""
MIGRATED = LEGACY.replace(
    '      "approvalRequired"', '      "approvalPolicy": "configured",\n      "approvalRequired"'
).replace(
    '{\n  "_"',
    '{\n  "autoApprove": {"enabled": false, "modelId": "anthropic:claude-haiku-4-5"},\n  "_"',
)
CASES = [
    ({"approvalPolicy": "none", "approvalRequired": True, "sensitiveTools": ["t"]}, None, "none"),
    ({"approvalPolicy": "", "approvalRequired": True}, None, ""),
    ({"approvalPolicy": "what", "approvalRequired": True}, None, "what"),
    ({"approvalRequired": True, "sensitiveTools": ["t"]}, "configured", "configured"),
    ({"approvalRequired": True, "sensitiveTools": []}, "dangerous", "dangerous"),
    ({"approvalRequired": True}, "dangerous", "dangerous"),
    ({"approvalRequired": False, "sensitiveTools": ["t"]}, None, "dangerous"),
    ({"approvalRequired": False}, None, "dangerous"),
    ({"sensitiveTools": ["t"]}, None, "dangerous"),
    ({}, None, "dangerous"),
]
"""A section, what is written into it, what holds."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / ".ironcurtain").mkdir()
    return tmp_path / ".ironcurtain"


def written(directory: Path, text: str, name: str = "config.json") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def load(home: Path, config: Path | None = None) -> Settings:
    return load_settings({"HOME": str(home)}, config)


def migrate_file(file: Path, now: datetime) -> tuple[str, ...]:
    plan = plan_of(file)
    return () if plan is None else migrate(plan, now).lines


def names(directory: Path) -> list[str]:
    return sorted([entry.name for entry in directory.iterdir()])


def document(section: Json) -> str:
    return orjson.dumps({"autoApprove": OFF, "security": {"interceptor": section}}).decode()


@pytest.mark.requirement("E-6")
@pytest.mark.parametrize(("section", "inserted", "holds"), CASES)
def test_a_section_stands_for_what_was_written_into_it(
    section: dict[str, Json], inserted: str | None, holds: str
) -> None:
    assert migrated_mode(section) == inserted


@pytest.mark.requirement("E-6")
@pytest.mark.parametrize(("section", "inserted", "holds"), CASES)
def test_each_legacy_section_means_what_it_should_before_and_after(
    state: Path, section: dict[str, Json], inserted: str | None, holds: str
) -> None:
    file = written(state, document(section))
    assert load(state.parent).overlay.interceptor.approval_policy == holds
    said = migrate_file(file, NOW)
    wanted = section if inserted is None else {"approvalPolicy": inserted, **section}
    assert orjson.loads(file.read_bytes())["security"]["interceptor"] == wanted
    assert bool(said) is (inserted is not None)
    assert load(state.parent).overlay.interceptor.approval_policy == holds


@pytest.mark.requirement("E-6")
@pytest.mark.parametrize(("section", "inserted", "holds"), CASES)
def test_a_file_that_was_named_means_the_same_and_stays_as_it_is(
    tmp_path: Path, section: dict[str, Json], inserted: str | None, holds: str
) -> None:
    file = written(tmp_path, document(section), "mine.json")
    settings = load(tmp_path, file)
    assert settings.overlay.interceptor.approval_policy == holds
    assert file.read_text(encoding="utf-8") == document(section)
    said = [str(warning) for warning in settings.warnings if "deprecated: read" in str(warning)]
    what = f'deprecated: read as "approvalPolicy": "{inserted}"; to write that down, run '
    assert [what in line for line in said] == ([] if inserted is None else [True])


@pytest.mark.requirement("E-6", "A-86")
def test_both_changes_are_made_in_one_step_and_the_rest_stays(state: Path) -> None:
    file = written(state, LEGACY)
    file.chmod(0o640)
    assert migrate_file(file, NOW) == (
        'added "autoApprove", which is off',
        (
            'added "approvalPolicy": "configured" in security.interceptor, '
            'which "approvalRequired" stood for'
        ),
        f"as it was: {state / BACKUP}",
    )
    assert file.read_text(encoding="utf-8") == MIGRATED
    backup = state / BACKUP
    assert backup.read_text(encoding="utf-8") == LEGACY
    assert [entry.stat().st_mode & 0o777 for entry in (file, backup)] == [0o640, 0o640]
    assert names(state) == ["config.json", BACKUP]


@pytest.mark.requirement("A-86")
def test_a_file_of_before_the_auto_approver_gets_the_section_switched_off(state: Path) -> None:
    file = written(state, '{"mcpServers": {}}')
    assert migrate_file(file, NOW)[0] == 'added "autoApprove", which is off'
    assert orjson.loads(file.read_bytes()) == {"autoApprove": OFF, "mcpServers": {}}


def test_a_file_that_init_wrote_is_of_no_older_version(state: Path) -> None:
    assert plan_of(written(state, '{"_preset": "coding", "allowedDirectory": "/a"}')) is None


def test_it_is_done_once(state: Path) -> None:
    file = written(state, LEGACY)
    assert migrate_file(file, NOW)
    assert migrate_file(file, NOW) == ()
    assert names(state) == ["config.json", BACKUP]


@pytest.mark.parametrize(
    "text", table("config/migration/migration.what_needs_nothing_or", list[str])
)
def test_what_needs_nothing_or_is_no_configuration_is_left_alone(state: Path, text: str) -> None:
    file = written(state, text)
    assert migrate_file(file, NOW) == ()
    assert file.read_text(encoding="utf-8") == text
    assert names(state) == ["config.json"]


def test_a_byte_order_mark_is_no_hindrance(state: Path) -> None:
    file = state / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + LEGACY.encode())
    assert migrate_file(file, NOW)
    assert file.read_bytes() == b"\xef\xbb\xbf" + MIGRATED.encode()


def test_a_link_stays_a_link_and_the_copy_lies_where_the_agent_may_not_look(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = written(tmp_path / "dotfiles", LEGACY, "proxy.json")
    link = state / "config.json"
    link.symlink_to(real)
    assert migrate_file(link, NOW)
    assert link.readlink() == real
    assert real.read_text(encoding="utf-8") == MIGRATED
    assert names(tmp_path / "dotfiles") == ["proxy.json"]
    assert (state / BACKUP).read_text(encoding="utf-8") == LEGACY


def test_an_older_copy_is_never_overwritten(state: Path) -> None:
    file = written(state, LEGACY)
    older = written(state, "older", BACKUP)
    assert migrate_file(file, NOW)[-1] == f"as it was: {state / BACKUP}-1"
    assert older.read_text(encoding="utf-8") == "older"
    assert (state / f"{BACKUP}-1").read_text(encoding="utf-8") == LEGACY


def test_without_a_copy_nothing_is_changed(state: Path) -> None:
    file = written(state, LEGACY)
    taken = [BACKUP, *[f"{BACKUP}-{number}" for number in range(1, 100)]]
    for name in taken:
        written(state, "older", name)
    lines = migrate_file(file, NOW)
    assert all(line.startswith("cannot be rewritten (file exists): write ") for line in lines)
    assert file.read_text(encoding="utf-8") == LEGACY
    assert names(state) == sorted(["config.json", *taken])


def test_what_was_changed_meanwhile_is_left_alone(state: Path) -> None:
    file = written(state, "the user's latest words")
    with pytest.raises(OSError, match="changed meanwhile"):
        rewrite(file, b"what we read", b"what we made of it", NOW)
    assert file.read_text(encoding="utf-8") == "the user's latest words"
    assert names(state) == ["config.json"]


MIGRATE = """
import resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from ironcurtain_proxy.config.migration import migrate, plan_of
if sys.argv[2] != "unlimited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
if sys.argv[2] == "torn":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
plan = plan_of(Path(sys.argv[1]))
print(*migrate(plan, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)).lines, sep="\\n")
"""


def migrated_elsewhere(file: Path, limit: str, *prefix: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-c", MIGRATE, str(file), limit]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.requirement("E-6")
def test_on_a_full_disk_nothing_is_lost_and_the_meaning_holds(state: Path) -> None:
    file = written(state, LEGACY)
    said = migrated_elsewhere(file, "full")
    assert said.returncode == 0, said.stderr
    assert said.stdout == (
        'cannot be rewritten (file too large): write "autoApprove", which is off\n'
        'cannot be rewritten (file too large): write "approvalPolicy": "configured" in '
        'security.interceptor, which "approvalRequired" stood for\n'
    )
    assert file.read_text(encoding="utf-8") == LEGACY
    assert names(state) == ["config.json"]
    assert load(state.parent).overlay.interceptor.approval_policy == "configured"


def test_killed_in_the_middle_of_writing_nothing_is_lost(state: Path) -> None:
    file = written(state, LEGACY)
    assert migrated_elsewhere(file, "torn").returncode == -signal.SIGXFSZ
    assert file.read_text(encoding="utf-8") == LEGACY
    assert load(state.parent).overlay.interceptor.approval_policy == "configured"
    assert migrated_elsewhere(file, "unlimited").returncode == 0
    assert file.read_text(encoding="utf-8") == MIGRATED


@pytest.mark.requirement("E-6")
def test_in_a_directory_that_cannot_be_written_the_meaning_holds(state: Path) -> None:
    file = written(state, LEGACY)
    state.chmod(0o500)
    # Root may write everywhere, unless it gives that right away.
    powerless = ("setpriv", "--bounding-set=-all") if os.geteuid() == 0 else ()
    try:
        said = migrated_elsewhere(file, "unlimited", *powerless)
        assert said.stdout.startswith("cannot be rewritten (permission denied): write "), said
        assert file.read_text(encoding="utf-8") == LEGACY
        assert load(state.parent).overlay.interceptor.approval_policy == "configured"
    finally:
        state.chmod(0o700)


def test_no_file_is_no_fault(tmp_path: Path) -> None:
    assert migrate_file(tmp_path / "config.json", NOW) == ()


def test_a_legacy_false_is_not_taken_for_none(tmp_path: Path) -> None:
    file = written(tmp_path, document({"approvalRequired": False}))
    (warning,) = [w for w in load(tmp_path, file).warnings if "deprecated" in w.message]
    assert 'approvalPolicy is "dangerous"' in warning.message


@pytest.mark.parametrize("name", ["config.json", "mine.json"])
def test_the_operator_is_told_the_command_that_writes_it_down(state: Path, name: str) -> None:
    file = written(state, LEGACY, name)
    (warning,) = [w for w in load(state.parent, file).warnings if "deprecated" in w.message]
    more = "" if name == "config.json" else f" --config {file}"
    assert warning.message.endswith(f"run ironcurtain-proxy config migrate{more}")


@pytest.fixture
def at_home(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(state.parent))
    monkeypatch.delenv("IRONCURTAIN_CONFIG", raising=False)
    return state


def test_the_command_shows_the_difference_and_writes_once(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(at_home, LEGACY)
    assert main(["config", "migrate", "--dry-run"]) == 1
    shown = capsys.readouterr().out
    assert '+      "approvalPolicy": "configured",' in shown.splitlines()
    assert "mcpServers" not in shown
    assert file.read_text(encoding="utf-8") == LEGACY
    assert names(at_home) == ["config.json"]
    assert main(["config", "migrate"]) == 0
    assert "as it was: " in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == MIGRATED
    assert [main(["config", "migrate", *more]) for more in ([], ["--dry-run"])] == [0, 0]
    assert len(names(at_home)) == len(["config.json", "its copy"])


def test_a_file_that_cannot_be_rewritten_is_said_and_left(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "security:\n  interceptor:\n    approvalRequired: true\n"
    file = written(at_home, text, "mine.yaml")
    assert main(["config", "migrate", "--config", str(file)]) == 1
    assert "add the setting by hand" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == text


def test_without_a_file_there_is_nothing_to_do_and_a_wrong_one_is_refused(at_home: Path) -> None:
    assert main(["config", "migrate"]) == 0
    file = written(at_home, '{"unknownKey": 1}')
    assert main(["config", "migrate"]) == 2
    assert file.read_text(encoding="utf-8") == '{"unknownKey": 1}'
