"""A mutation run is safe to start: one process at a time, all of which end with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
NOISY = "tests/decision/test_breaker.py"


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/mutate.py", *arguments],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The tool with one small module and its tests."""
    for name in ("scripts/mutate.py", "scripts/mutate_explained.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    module = tmp_path / "ironcurtain_proxy" / "decision" / "breaker.py"
    module.parent.mkdir(parents=True)
    module.write_text("def passes(count: int) -> bool:\n    return count < 3\n")
    for package in (module.parent, module.parent.parent):
        (package / "__init__.py").touch()
    return tmp_path


def with_tests(project: Path, text: str) -> None:
    file = project / NOISY
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"from ironcurtain_proxy.decision.breaker import passes\n\n\n{text}\n")


MODULE = ("--module", "decision.breaker", "--sample", "0")


def test_what_tests_notice_is_told_from_what_they_do_not(project: Path) -> None:
    with_tests(project, "def test_it():\n    assert passes(0)")
    known = project / "scripts" / "mutate_explained.txt"
    known.write_text("decision.breaker: 3 -> 4 # nobody counts to three\n")
    found = run(project, *MODULE)
    assert found.returncode == 1, found.stderr
    assert "survived decision.breaker:2: count < 3 -> count <= 3\n" in found.stdout
    assert found.stdout.endswith("1 killed  1 survived  0 timeout  1 explained  50.0 %\n")


@pytest.mark.parametrize(
    ("module", "named"),
    [("decision.breaker", "decision/test_breaker"), ("decision.nothing", "decision.nothing")],
)
def test_tests_or_modules_that_are_not_there_end_the_run(
    project: Path, module: str, named: str
) -> None:
    found = run(project, "--module", module)
    assert found.returncode == 1
    assert found.stderr == f"no such module, or no such tests: {named}\n"


def test_tests_that_fail_without_a_change_end_the_run(project: Path) -> None:
    with_tests(project, "def test_it():\n    assert passes(5)")
    found = run(project, *MODULE)
    assert found.returncode == 1
    assert "do not pass in time without any change" in found.stderr


def test_a_test_cannot_start_a_run_within_a_run(project: Path) -> None:
    with_tests(project, "def test_it():\n    assert passes(0)")
    found = run(project, *MODULE, IRONCURTAIN_MUTANT="1")
    assert found.returncode == 1
    assert found.stderr == "a mutation run does not start another\n"


def test_each_module_has_tests_that_are_there() -> None:
    """The look at the tests comes before the run is refused."""
    found = run(PROJECT, IRONCURTAIN_MUTANT="1")
    assert found.stderr == "a mutation run does not start another\n"
