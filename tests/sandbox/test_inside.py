"""The last step into a sandbox, run outside of one. What it does inside is shown end to end."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox import inside
from ironcurtain_proxy.sandbox.launch import Confinement, confine
from ironcurtain_proxy.sandbox.profile import SandboxProfile, refused_pairs
from tests.program import PATIENCE
from tests.sandbox.test_profile import spec

PROGRAM = [sys.executable, "-I", "-S", inside.__file__]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_it_becomes_the_command_with_every_argument_as_it_is() -> None:
    words = ["two words", "--", "-x", "", "$(false)"]
    done = run(
        "99", "256", "-", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words
    )
    assert (done.stdout, done.returncode) == (f"{words}\n", 0)


def test_the_environment_is_the_one_that_was_handed_over() -> None:
    done = run("99", "256", "-", "--", "env", A="b")
    assert set(done.stdout.splitlines()) == {f"PATH={os.environ['PATH']}", "A=b"}
    done = run("99", "256", "-", "--", "env", LC_CTYPE="C.UTF-8")
    assert "LC_CTYPE=C.UTF-8" in done.stdout.splitlines()


def test_the_command_ends_at_a_closed_pipe_as_it_would_without() -> None:
    done = run("99", "256", "-", "--", "sh", "-c", "grep SigIgn /proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    assert ignored & (1 << 12) == 0


def test_a_command_that_is_not_there_is_named() -> None:
    done = run("99", "256", "-", "--", "/nowhere/program")
    assert (done.stderr, done.returncode) == ("/nowhere/program: No such file or directory\n", 127)


def test_a_directory_that_is_not_hidden_is_left_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to("/dev/shm")
    before = Path("/dev/shm").stat().st_mode
    done = run("99", "256", "-", str(kept), str(link), str(tmp_path / "absent"), "--", "true")
    assert done.returncode == 0
    assert kept.stat().st_mode & 0o777 == 0o700
    assert Path("/dev/shm").stat().st_mode == before


def test_where_the_profile_hides_what_it_needs_the_server_starts_without_it() -> None:
    def argv(*hidden: str) -> list[str]:
        launch = confine(spec(), Confinement(("srt",), SandboxProfile(deny_read=hidden)))
        launch.close()
        launch.remove()
        return [*launch.argv]

    assert inside.__file__ in argv("/srv/hidden")
    for hidden in (str(Path(sys.executable).parent), sys.base_prefix, inside.__file__):
        assert inside.__file__ not in argv("/srv/hidden", hidden)
    assert inside.__file__ in argv()


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW", "SOCK_DGRAM | s.SOCK_CLOEXEC"])
def test_the_command_makes_no_pair_of_datagram_sockets(kind: str) -> None:
    pairs = refused_pairs(platform.machine())
    if pairs is None:
        pytest.skip("no filter is known for this machine")
    code = f"import socket as s; s.socketpair(); s.socketpair(s.AF_UNIX, s.{kind})"
    done = run("99", "256", pairs.hex(), "--", sys.executable, "-c", code)
    assert "Operation not permitted" in done.stderr
    assert done.returncode == 1


def test_a_command_whose_filter_the_kernel_refuses_is_not_started() -> None:
    done = run("99", "256", "ff" * 8, "--", "echo", "started")
    assert done.stdout == ""
    assert done.stderr == "echo: the kernel takes no seccomp filter here\n"
    assert done.returncode == 126


def test_a_variable_for_the_command_alone_gets_its_name_there() -> None:
    given = {"IRONCURTAIN_INSIDE_NODE_OPTIONS": "--x", "NODE_OPTIONS": "--y", "OTHER": "z"}
    words = [*PROGRAM, "99", "256", "-", "--", "env"]
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["NODE_OPTIONS=--x", "OTHER=z"]


def test_the_processes_of_the_command_are_bounded_for_good() -> None:
    shown = "import resource as r; print(r.getrlimit(r.RLIMIT_NPROC))"
    done = run("99", "256", "-", "--", sys.executable, "-c", shown)
    assert done.stdout == "(99, 99)\n"


def test_the_open_files_of_each_process_are_bounded_for_good() -> None:
    done = run("99", "256", "-", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
    assert done.stdout == "256\n256\n"


def test_memory_is_taken_from_the_command_first() -> None:
    done = run("99", "256", "-", "--", "cat", "/proc/self/oom_score_adj")
    assert int(done.stdout) >= 500
