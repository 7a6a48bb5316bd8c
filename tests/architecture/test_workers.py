"""What is shared out to forks is run, reported, and missed where it did not end."""

import re
import subprocess
import sys
from pathlib import Path

from tests.program import ROOT

FILES = {
    "test_good.py": """
        import pytest

        @pytest.fixture(scope="module")
        def made():
            yield []
            print("taken down")

        def test_skipped(): pytest.skip("for a reason")
        def test_first(made, tmp_path): made.append(1)
        def test_second(made, tmp_path): assert made == [1]
        """,
    "test_bad.py": """
        import pytest

        @pytest.fixture
        def torn():
            yield
            assert "left" == "nothing"

        def test_wrong():
            print("printed" + " by it")
            assert 1 + 1 == 3
        def test_leaves_something(torn): pass
        """,
}


def run(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Two workers with these files."""
    for name, text in files.items():
        lines = text.strip("\n").splitlines()
        (folder / name).write_text("\n".join(line[8:] for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.workers", "--workers", "2",
        "-p", "no:cacheprovider", "-p", "no:randomly", "-rA", f"--rootdir={folder}",
        f"--basetemp={folder / 'made'}", *options, str(folder)]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


HEAVY = """
        import os, pytest
        pytestmark = pytest.mark.worker("heavy")
        def test_pid(tmp_path): print(f"by {os.getppid()}/{os.getpid()}.")
        """
OTHER = HEAVY.replace('"heavy"', '"other"').replace("by", "other")


def test_each_test_is_reported_once_with_what_it_printed_and_a_mark_has_one_worker(
    tmp_path: Path,
) -> None:
    """What one file of a mark has imported is there for the other, and not in other workers."""
    files = {f"test_{letter}.py": HEAVY for letter in "abcd"}
    done = run(tmp_path, {**FILES, **files, "test_e.py": OTHER, "test_f.py": OTHER}, "-Wignore")
    assert done.returncode == 1, done.stderr
    assert "1 failed, 9 passed, 1 skipped, 1 error" in done.stdout
    assert "assert (1 + 1) == 3" in done.stdout
    assert done.stdout.count("printed by it") == 1
    assert done.stdout.count("taken down") == 1
    assert "for a reason" in done.stdout
    pids = re.findall(r"by \d+/(\d+)\.", done.stdout)
    others = re.findall(r"other \d+/(\d+)\.", done.stdout)
    assert (len(pids), len({*pids})) == (4, 1)
    assert (len(others), len({*others})) == (2, 1)


def test_a_worker_that_dies_fails_the_run_and_names_the_test(tmp_path: Path) -> None:
    dying = (
        "        import os\n        def test_dies(): os._exit(0)\n        def test_next(): pass\n"
    )
    done = run(tmp_path, {"test_dying.py": dying})
    assert done.returncode == 1, done.stderr
    assert "test_dying.py::test_dies" in done.stdout


def test_after_the_first_failure_no_further_file_is_handed_out(tmp_path: Path) -> None:
    files = {"test_a.py": "        def test_a(): assert False\n"}
    files |= {f"test_{letter}.py": "        def test_last(): pass\n" for letter in "bc"}
    done = run(tmp_path, files, "-x", "--workers=1")
    assert done.returncode == 1, done.stderr
    # The one that follows was handed out before the failing test had ended.
    assert "test_b.py::test_last" in done.stdout
    assert "test_c.py::test_last" not in done.stdout


def test_a_file_that_cannot_be_read_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, {**FILES, "test_torn.py": "        def test_(: pass\n"})
    assert done.returncode == 2, done.stderr
    assert "SyntaxError" in done.stdout
