"""What a contained call leaves running stands still until the next call. With the real sandbox."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import done, folder
from tests.e2e.installation import Installation
from tests.e2e.process_tree import Watch, below
from tests.e2e.raw_client import RawClient
from tests.e2e.test_containment import contained
from tests.e2e.test_left_behind import IDENTITY
from tests.program import PATIENCE, wait_until
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")

EVIL: Final = "\\n[core]\\n\\tfsmonitor = {w}/evil.sh\\n"
LEAVE: Final = """
LEAVE() { (setsid sh -c "sleep 1; while :; do $1; echo >> {w}/beats; sleep 0.02; done" \\
    > /dev/null 2>&1 < /dev/null &); }
"""
"""Leave a process that does something again and again, from a second later on."""
LEFT: Final = {
    "a second name": "git init -q a; mkdir -p node_modules/x; printf '" + EVIL + "' > evil;"
    " LEAVE 'ln -f a/.git/config node_modules/x/c; cat evil >> node_modules/x/c'",
    "a mapping": "git init -q b; printf '%200s' >> b/.git/config; cat > map.py <<'END'\n"
    "import mmap, os, time\n"
    "f = open('{w}/b/.git/config', 'r+b'); m = mmap.mmap(f.fileno(), 0)\n"
    "t = b'" + EVIL + "'\n"
    "time.sleep(1)\n"
    "while True:\n"
    "    m[-len(t):] = t\n"
    "    open('{w}/beats', 'a').write('mapping\\n')\n"
    "    time.sleep(0.02)\n"
    "END\n"
    "(setsid python3 map.py > /dev/null 2>&1 < /dev/null &)",
    "a new repository": "LEAVE 'git init -q c; cat evil >> c/.git/config'",
    "a file renamed into place": "git init -q e; LEAVE 'cp e/.git/config e2; cat evil >> e2; mv e2"
    " e/.git/config'",
    "a process in a stopped group of its own": "git init -q f; cat > hup.py <<'END'\n"
    "import os, signal, time\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "    os.setpgid(0, 0); time.sleep(1)\n"
    "    while True:\n"
    "        open('{w}/f/.git/config', 'a').write('" + EVIL + "'); time.sleep(0.02)\n"
    "time.sleep(1)\n"
    "END\n"
    "(setsid python3 hup.py > /dev/null 2>&1 < /dev/null &)",
}
"""Commands that leave a process behind, which writes from a second later on, again and again."""


@dataclass
class Session:
    """An agent whose commands run contained, and the user's git in all that they make."""

    installation: Installation
    agent: RawClient = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        one = self.installation
        one.variables["PATH"] = os.environ["PATH"]
        folder(one, "out")
        (one.workspace / "evil.sh").write_text(f"#!/bin/sh\necho >> {one.root}/out/ran\n")
        (one.workspace / "evil.sh").chmod(0o755)
        self.agent = contained(one)
        self.ran = one.root / "out/ran"
        self.beats = one.workspace / "beats"

    def call(self, command: str) -> str:
        """Run a command as a contained call."""
        self.count += 1
        here = self.installation.workspace
        script = folder(self.installation, "scripts") / f"call-{self.count}.sh"
        text = command.replace("{w}", str(here))
        script.write_text(f"{IDENTITY}cd {here}\n{LEAVE.replace('{w}', str(here))}\n{text}\n")
        return done(self.agent.call("shell", {"command": f"sh {script} < /dev/null"}))

    def size(self) -> int:
        with suppress(FileNotFoundError):
            return self.beats.stat().st_size
        return 0

    def poll(self, rounds: int) -> int:
        """Let the user's git look at every repository; gives how often it ran a program."""
        found = 0
        for _ in range(rounds):
            for repository in self.installation.workspace.glob("*/.git"):
                subprocess.run(
                    ["git", "-C", str(repository.parent), "status"],
                    check=False,
                    capture_output=True,
                    env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
                    timeout=PATIENCE,
                )
            with suppress(FileNotFoundError):
                self.ran.unlink()
                found += 1
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = Session(Installation(tmp_path_factory.mktemp("standstill")))
    yield session
    session.installation.end()


def test_nothing_that_a_call_left_runs_until_the_next_call(tmp_path: Path) -> None:
    session = Session(Installation(tmp_path))
    session.call("\n".join(LEFT.values()))
    assert session.poll(30) == 0
    assert session.size() == 0
    # All of it was there, and goes on in the next call. What it wrote then is put back.
    session.call("for n in $(seq 500); do test -s beats && break; sleep 0.02; done")
    assert session.size() > 0
    session.poll(1)
    before = session.size()
    assert session.poll(20) == 0
    assert session.size() == before
    # Nor does it act while the session ends.
    session.installation.end()
    assert session.poll(1) == 0
    assert session.size() == before


def test_a_development_server_answers_in_the_next_call(session: Session) -> None:
    session.call(
        "mkdir -p web; echo hello > web/index.html; (cd web; setsid python3 -m http.server 8123"
        " > /dev/null 2>&1 < /dev/null &)\n"
        "curl -s --retry 99 --retry-delay 1 --retry-connrefused http://localhost:8123/"
    )
    for _ in range(3):
        assert "hello" in session.call("curl -s http://localhost:8123/")


def test_a_storm_of_processes_ends_and_the_server_serves_on(tmp_path: Path) -> None:
    session = Session(Installation(tmp_path))
    session.call(
        "cat > storm.sh <<'END'\nwhile :; do sh -c 'sleep 0.01 & sleep 0.01 &' & done\nEND"
    )
    session.call("(setsid sh storm.sh > /dev/null 2>&1 < /dev/null &)")
    # It was brought to a standstill, or all of it was ended and the server is started again.
    wait_until(lambda: not session.agent.call("shell", {"command": "true"}).get("isError"))
    session.installation.end()


def test_a_killed_proxy_leaves_no_stopped_process(tmp_path: Path) -> None:
    session = Session(Installation(tmp_path))
    session.call(LEFT["a new repository"].replace("evil", "nothing"))
    proxy = session.agent.process.pid
    watch = Watch(below({proxy}))
    os.kill(proxy, 9)
    assert watch.survivors() == set()


WAKES: Final = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"
calls = {"timer": 107 if arm else 222, "queue": 184 if arm else 244, "clone3": 435,
         "fcntl": 25 if arm else 72, "prctl": 167 if arm else 157, "clone": 220 if arm else 56}
def tried(name, *given):
    done = libc.syscall(calls[name], *given)
    if name.startswith("clone") and done == 0:
        os._exit(0)
    return "done" if done >= 0 else os.strerror(ctypes.get_errno())
event = ctypes.create_string_buffer(struct.pack("=Qii", 0, 18, 0), 64)
made = ctypes.c_int()
read, write = os.pipe()
clone3 = ctypes.create_string_buffer(struct.pack("=8Q", 0, 0, 0, 0, 18, 0, 0, 0), 64)
print("timer:", tried("timer", 0, event, ctypes.byref(made)))
print("timer without an event:", tried("timer", 0, None, ctypes.byref(made)))
print("queue:", tried("queue", 0, event))
print("signal of a file:", tried("fcntl", read, 10, 18))
print("death of a file:", tried("fcntl", read, 10, 9))
print("parent:", tried("prctl", 1, 18))
print("parent, with more bits:", tried("prctl", 1 | 1 << 40, 18 | 1 << 40))
print("child:", tried("clone", 18, None, None, None, None))
print("child, with more bits:", tried("clone", 18 | 1 << 40, None, None, None, None))
print("child by clone3:", tried("clone3", clone3, 64))
print("honest child:", tried("clone", 17, None, None, None, None))
print("honest parent:", tried("prctl", 1, 15))
"""
WORKS: Final = table("e2e/standstill.works", dict[str, str])


def test_nothing_has_the_kernel_wake_a_stopped_process_later(session: Session) -> None:
    said = session.call("cat > wakes.py <<'END'\n" + WAKES + "END\npython3 wakes.py")
    assert [line.partition(": ")[2] for line in said.splitlines()[:12]] == [
        *3 * ["Function not implemented"],
        *6 * ["Invalid argument"],
        "Function not implemented",
        "done",
        "done",
    ]


@pytest.mark.parametrize("program", WORKS)
def test_programs_do_without_what_is_refused(session: Session, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    command = WORKS[program].replace("$REAL", str(Path.home()))
    said = session.call(command)
    assert said.endswith("exit 0"), said
