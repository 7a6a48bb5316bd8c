"""Calls that are judged to only read, run by the real programs: nothing changes, nothing leaks."""

import os
import random
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.e2e.confined_installation import require_sandbox
from tests.shell.made_calls import BUILTIN, MARK, laid_out, place_of, reading_calls, table

_SEED: Final = 4
_WAIT: Final = frozenset({"sleep", "vmstat", "wait"})


def _contents(top: Path) -> dict[str, str]:
    """Return the files with a digest of each, without the index that git may refresh."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        is_file = path.is_file() and not path.is_symlink()
        found[name] = sha256(path.read_bytes()).hexdigest() if is_file else "other"
    found.pop("work/.git/index", None)
    return found


def test_calls_that_only_read_change_nothing_and_show_no_secret(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        require_sandbox()
    there = laid_out(tmp_path.resolve() / "laid-out")
    home = there.parent
    draw = random.Random(_SEED)  # noqa: S311  the calls are to be the same each time
    # A file outside the workspace counts as one of the system, in a temporary directory.
    commands = [
        command
        for entry in table()
        if (entry.name in BUILTIN or shutil.which(entry.words[0])) and entry.name not in _WAIT
        for command in reading_calls(entry, draw, place_of(there), 2, tries=15)
        if "taxes" not in command and MARK not in command
    ]
    assert len(commands) > 200
    before = _contents(home)
    script = "\n".join('timeout 2 bash -c "$1" < /dev/null; shift' for _ in commands)
    done = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(home),
         str(home), "--unshare-net", "--unshare-pid", "--die-with-parent", "--chdir", str(there),
         "bash", "-c", script, "sh", *commands],
        capture_output=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TOKEN": MARK, "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert _contents(home) == before
    assert MARK not in (done.stdout + done.stderr).decode(errors="replace")
    assert done.stdout
