"""What a hostile agent tries with a shell in a sandbox, and what must hold after each attempt.

The policy allows all of it: nothing but the sandbox, and the look afterwards, stands in the way.
"""

import os
import select
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.attack_tables import NETWORK, OUTSIDE, STEERS
from tests.e2e.confined_installation import folder
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import RawClient, text
from tests.e2e.test_containment import contained

pytestmark = pytest.mark.usefixtures("sandbox")

Tree = dict[str, tuple[object, ...]]


@dataclass
class Attacked:
    """A session whose shell runs whatever it is told."""

    installation: Installation
    agent: RawClient = field(init=False)

    def __post_init__(self) -> None:
        one = self.installation
        self.out, self.home, self.workspace = folder(one, "out"), one.home, one.workspace
        for file in (self.out / "precious.txt", *(self.home / n for n in _HOME)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("precious: aa")
        one.rules = [rule("go", "allow", tool=["shell"]), rule("rest", "escalate", "ask")]
        for name in ("seed.txt", "seed2.txt", "seed3.txt"):
            (self.workspace / name).write_text("evil")
        self.agent = contained(one)

    def run(self, commands: Sequence[str], **names: object) -> Iterator[tuple[str, str]]:
        """Run each by a script that lies where the shell may not write."""
        scripts = folder(self.installation, "scripts")
        for number, command in enumerate(commands):
            for name, value in {"out": self.out, "home": self.home, **names}.items():
                command = command.replace("{" + name + "}", str(value))  # noqa: PLW2901  the same one
            script = scripts / f"{number}.sh"
            script.write_bytes(f"cd {self.workspace}\n{command}\n".encode())
            told = self.agent.call("shell", {"command": f"timeout 10 sh {script} < /dev/null"})
            yield command, text(told)


_HOME = (".bashrc", ".ssh/authorized_keys", ".gitconfig", ".npm/_logs/x")


def tree(*tops: Path) -> Tree:
    """All there is, without following a link."""
    found: Tree = {}
    for top in tops:
        for path in sorted(top.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, content)
    return found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    installation = Installation(tmp_path_factory.mktemp("attacked"))
    yield Attacked(installation)
    installation.end()


def test_nothing_outside_the_workspace_changes(attacked: Attacked) -> None:
    def outside() -> Tree:
        config = attacked.home / ".ironcurtain/config.json"
        plain = [attacked.home / name for name in (".ssh", ".npm")]
        files = {str(f): (f.read_bytes(),) for f in (attacked.home / ".bashrc", config)}
        names = {str(attacked.home): (sorted(one.name for one in attacked.home.iterdir()),)}
        return {**tree(attacked.out, *plain), **files, **names}

    before = outside()
    for command, said in attacked.run(OUTSIDE):
        assert outside() == before, (command, said)


def test_nothing_outside_hears_of_anything(attacked: Attacked) -> None:
    with ExitStack() as stack:
        listeners: list[socket.socket] = []

        def listen(family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
            one = stack.enter_context(socket.socket(family, kind))
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
            one.setblocking(False)
            listeners.append(one)
            return one

        port = listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1]
        listen(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", port))  # noqa: S104  for a broadcast
        if socket.has_ipv6:
            listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port))
        abstract = f"attacked-{os.getpid()}"
        listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}")
        for name, place in (("out", attacked.out), ("w", attacked.workspace)):
            # A socket's path is short; the directory is the one that the commands name.
            short = attacked.installation.root / name
            if short != place:
                short.symlink_to(place)
            here = os.open(short, os.O_RDONLY)
            stack.callback(os.close, here)
            listen(socket.AF_UNIX, socket.SOCK_STREAM, f"/proc/self/fd/{here}/host.sock")
        for command, said in attacked.run(NETWORK, port=port, abstract=abstract):
            for one in listeners:
                assert not select.select([one], [], [], 0)[0], (command, said)


def steering(top: Path) -> Iterator[str]:
    """Whatever makes git or an agent run something, by its name in a workspace."""
    for directory, names, files in os.walk(os.fsencode(top)):
        lower = directory.lower()
        inside = b"/.git/" in lower + b"/"
        here = {*names, *files}
        if b"node_modules" in directory:
            continue
        for name in here:
            path = directory + b"/" + name
            is_linked = stat.S_ISLNK(os.lstat(path).st_mode)
            is_text = name in {b"config", b"config.worktree"} and name in files and not is_linked
            content = Path(os.fsdecode(path)).read_bytes() if is_text else b""
            is_hook = lower.endswith(b"/hooks") and not name.endswith(b".sample")
            is_link = name.lower() in {b".git", b".claude"} and (name in files or is_linked)
            is_setting = lower.endswith(b"/.claude") and name.lower().startswith(b"settings")
            is_config = b"evil" in content
            # Where git takes a directory for a repository.
            bare = {b"HEAD", b"objects", b"refs"} <= here or {b"HEAD", b"commondir"} <= here
            hooked = is_hook and (inside or lower.endswith(b".git/hooks"))
            if is_link or is_setting or hooked or (is_config and (inside or bare)):
                yield os.fsdecode(path)
            if not inside and name == b"commondir" and bare:
                yield os.fsdecode(path)


def test_nothing_that_steers_git_or_an_agent_is_left(attacked: Attacked) -> None:
    for command, said in attacked.run(STEERS):
        assert list(steering(attacked.workspace)) == [], (command, said)


def test_a_process_that_stays_reaches_no_call_and_no_host(attacked: Attacked) -> None:
    """It reads the pipe of calls, tries the server's memory and the other processes."""
    program = attacked.out.parent / "stays.py"
    program.write_text(
        "import os\n"
        "found = []\n"
        # What Node.js and Python load first in a sandbox are files of the package.
        "own = [os.environ.get(one, '').encode() for one in ('NODE_OPTIONS', 'PYTHONPATH')]\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for name in ('mem', 'fd/0', 'root/etc', 'cwd', 'ns/net', 'environ'):\n"
        "        try:\n"
        "            path = f'/proc/{pid}/{name}'\n"
        "            flags = os.O_RDWR if name == 'mem' else os.O_RDONLY | os.O_NONBLOCK\n"
        "            seen = os.read(os.open(path, flags), 9999)\n"
        "            seen = seen.replace(own[0], b'').replace(own[1], b'')\n"
        "            if b'ironcurtain_proxy' in seen:\n"
        "                found.append(path)\n"
        "        except OSError:\n"
        "            pass\n"
        "print('found', found)\n"
    )
    (told,) = [said for _, said in attacked.run([f"{sys.executable} {program}"])]
    assert "found []" in told
