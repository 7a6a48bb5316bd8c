"""A configuration file of before the auto-approver."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.administration.backfill import backfill_auto_approve

LEGACY = '{\n  "_": "mine",\n\n  "mcpServers": {"a": {"command": "x"}}\n}\n'
OFF = {"enabled": False, "modelId": "anthropic:claude-haiku-4-5"}


def written(directory: Path, text: str) -> Path:
    file = directory / "config.json"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.requirement("A-86")
def test_a_legacy_file_gets_the_section_switched_off_and_keeps_the_rest(tmp_path: Path) -> None:
    file = written(tmp_path, LEGACY)
    file.chmod(0o640)
    assert backfill_auto_approve(file)
    text = file.read_text(encoding="utf-8")
    assert orjson.loads(text) == {**orjson.loads(LEGACY), "autoApprove": OFF}
    assert text.endswith(LEGACY[1:])
    assert file.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.requirement("A-86")
def test_it_is_inserted_once(tmp_path: Path) -> None:
    file = written(tmp_path, LEGACY)
    assert backfill_auto_approve(file)
    text = file.read_bytes()
    assert not backfill_auto_approve(file)
    assert file.read_bytes() == text


@pytest.mark.parametrize(
    "text",
    [
        '{"autoApprove": {"enabled": true}}',
        '{"autoApprove": null}',
        "[]",
        "",
        "{",
        '{"mcpServers": {}',
        "{} and more",
        '"{"',
    ],
)
def test_what_has_the_section_or_is_no_object_is_left_alone(text: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    assert not backfill_auto_approve(file)
    assert file.read_text(encoding="utf-8") == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    file = written(tmp_path / "dotfiles", LEGACY)
    link = tmp_path / "config.json"
    link.symlink_to(file)
    assert backfill_auto_approve(link)
    assert link.is_symlink()
    assert orjson.loads(file.read_bytes())["autoApprove"] == OFF


ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from ironcurtain_proxy.administration.backfill import backfill_auto_approve
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
print(backfill_auto_approve(Path(sys.argv[1])))
"""


def test_a_file_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    file = written(tmp_path, LEGACY)
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(file)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert said.stdout == "False\n"
    assert file.read_text(encoding="utf-8") == LEGACY
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]


def test_no_file_is_no_fault(tmp_path: Path) -> None:
    assert not backfill_auto_approve(tmp_path / "config.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON), st.sampled_from([0, orjson.OPT_INDENT_2]))
def test_whatever_the_file_says_it_says_afterwards(said: dict[str, object], layout: int) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "config.json"
        file.write_bytes(orjson.dumps(said, option=layout))
        assert backfill_auto_approve(file) is ("autoApprove" not in said)
        assert orjson.loads(file.read_bytes()) == {"autoApprove": OFF, **said}
