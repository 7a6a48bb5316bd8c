"""Files that appear later are covered in sandboxes that run already, by root and other users."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox import closing

INSIDE = """
printf 'ready\\n'; read go
cat "$0/file" 2>&1; ls "$0/directory" 2>&1
umount "$0/file" 2>/dev/null; rm -f "$0/file" 2>/dev/null
cat "$0/file" 2>&1; printf 'end\\n'; read go
"""


@pytest.fixture(params=["this user", "an ordinary user"])
def words(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The words before a command: whose process it is."""
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bubblewrap")
    if request.param == "an ordinary user":
        if os.geteuid() != 0:
            pytest.skip("the other tests run as an ordinary user")
        return ("runuser", "-u", "nobody", "--")
    return ()


@pytest.fixture
def home() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="closing-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def test_what_appeared_later_is_covered_and_stays_covered(
    words: tuple[str, ...], home: Path
) -> None:
    program = home / "closing.py"
    shutil.copy(closing.__file__, program)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    subprocess.run(["chmod", "-R", "755", str(home)], check=True)
    if words[:1] == ("runuser",):
        subprocess.run(["chown", "-R", "nobody", str(home)], check=True)
    sandbox = (
        *("bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc", "--cap-drop", "ALL"),
    )
    with subprocess.Popen(
        [*words, *sandbox, "/bin/sh", "-c", INSIDE, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip("there are no namespaces of this kind here")
        (home / "file").write_text("the canary sings")
        (home / "directory").mkdir()
        (home / "directory/canary").write_text("x")
        subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)
        covers = [python, "-I", "-S", str(program), str(process.pid)]
        as_user = words if words[:1] == ("runuser",) else ()
        covered = [str(home / "file"), str(home / "directory"), str(home / "nothing")]
        ran = subprocess.run([*as_user, *covers, *covered], check=False, capture_output=True)
        assert (ran.returncode, ran.stderr) == (0, b"")
        process.stdin.write("go\n")
        process.stdin.flush()
        said = ""
        while not said.endswith("end\n"):
            said += process.stdout.readline()
        process.stdin.close()
    assert "canary" not in said
    assert (home / "file").read_text() == "the canary sings"
