"""The probe whether this machine can confine a server: it confines a process.

The presence of programs is not enough: without user namespaces, they are there and fail.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.private_files import read_regular, write_whole
from ironcurtain_proxy.sandbox.directory import (
    WRAPPER,
    SandboxSettings,
    kill_all_with,
    make_directory,
    prepare,
    sealed,
)
from ironcurtain_proxy.sandbox.profile import SandboxProfile

VERSION: Final = "0.0.83"
"""The one version of srt that was tried."""

_SECONDS: Final = 20.0
_BUSY: Final = ("bridge sockets", "Sandbox dependencies not available")
"""Stand in srt's errors where socat took longer to start than the 0.6 s it has, and `which`, for a
program that is there, longer than a second."""
_APT: Final = "sudo apt-get install -y"
_PROGRAMS: Final = (
    ("node", "node", "install Node.js 20 or newer"),
    ("srt", "srt", ""),
    ("bwrap", "bubblewrap", f"{_APT} bubblewrap"),
    ("socat", "socat", f"{_APT} socat"),
    ("rg", "ripgrep", f"{_APT} ripgrep"),
)
_NAMESPACES: Final = (
    "see that /proc/sys/user/max_user_namespaces is not 0 and, on Ubuntu, "
    "run sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)


class Missing(Struct, frozen=True):
    """One reason for which this machine has no sandbox."""

    name: str
    why: str
    remedy: str
    """The command to run, or the thing to do."""


class Available(Struct, frozen=True):
    """A sandbox works on this machine."""

    command: tuple[str, ...]
    """Runs srt: the beginning of a command line."""


class Unavailable(Struct, frozen=True):
    """No sandbox works, with the reasons."""

    missing: tuple[Missing, ...]


def which(program: str, environ: Mapping[str, str], mode: int = os.F_OK | os.X_OK) -> str | None:
    """Return where a program is, on the `PATH` or in `~/.local/bin`.

    Our own advice installs srt there (`npm_install`), and a client of the desktop, or a terminal
    that was open before, may not have the directory in its `PATH`.
    """
    path, home = environ.get("PATH", os.defpath), environ.get("HOME", "")
    more = f"{os.pathsep}{home}/.local/bin" if home.startswith("/") else ""
    return shutil.which(program, mode, path + more)


def missing_programs(environ: Mapping[str, str]) -> tuple[Missing, ...]:
    """Return the programs that are found nowhere, or lie there and may not be run."""
    missing = []
    for program, name, remedy in _PROGRAMS:
        if which(program, environ) is None:
            # npm leaves a link to a file without that mode where an installation was cut short.
            lies = which(program, environ, os.F_OK)
            if lies is None:
                missing.append(Missing(name, "not found", remedy or _srt(environ)))
            else:
                missing.append(
                    Missing(name, f"{lies} is not executable", f"chmod +x {shlex.quote(lies)}")
                )
    return tuple(missing)


def _srt(environ: Mapping[str, str]) -> str:
    # Joined where srt is missing alone: it takes time at each start.
    from ironcurtain_proxy.sandbox.installed import npm_install  # noqa: PLC0415

    words = npm_install(environ, Path(environ.get("HOME") or "/"))
    return f"{words} @anthropic-ai/sandbox-runtime@{VERSION}"


def probe(environ: Mapping[str, str]) -> Available | Unavailable:
    """Run one process in a sandbox, and see that it is in one. Blocks for about half a second."""
    missing = missing_programs(environ)
    if missing:
        return Unavailable(missing)
    command = (os.path.abspath(which("srt", environ) or "srt"),)  # noqa: PTH100  a link must stay one
    why = _try(command, environ)
    if why is not None and any(said in why for said in _BUSY):
        why = _try(command, environ)
    if why is None:
        return Available(command)
    return Unavailable((Missing("sandbox", why, _NAMESPACES),))


def _try(command: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    """Return the problem.

    It is None if a confined process was refused to write where nothing may be written.
    """
    descriptor = sealed(SandboxSettings.of(SandboxProfile()))
    directory = None
    try:
        directory = make_directory()
        prepare(directory.path)
        # srt searches its working directory for files to protect: an empty one.
        empty = Path(directory.path, "empty")
        empty.mkdir()
        # The file system of a confined process is read-only. Its process table is its own. So is
        # what processes share beside files, which is the work of our own wrapper.
        test = (
            "[ ! -w / ] && [ $(ls -d /proc/[0-9]* | wc -l) -lt 30 ] && "
            f'[ "$(readlink /proc/self/ns/ipc)" != "{_ipc()}" ] && echo confined'
        )
        ran = subprocess.run(  # noqa: S603  an argument list, no shell of ours
            [*command, "-s", f"/proc/self/fd/{descriptor}", "--", "sh", "-c", test],
            check=False,
            capture_output=True,
            cwd=empty,
            env={**environ, "TMPDIR": directory.path},
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        if directory is not None:
            kill_all_with(directory.path)
        return f"it did not start within {_SECONDS:g} s"
    except OSError as error:
        return os.strerror(error.errno or 0).lower()
    finally:
        os.close(descriptor)
        if directory is not None:
            directory.remove()
    if ran.returncode == 0 and ran.stdout.decode(errors="replace").strip() == "confined":
        return None
    words = " ".join(ran.stderr.decode(errors="replace").split())
    return words[-200:] or f"it ended with status {ran.returncode}"


def _ipc() -> str:
    """Return the name of our own IPC namespace."""
    try:
        return str(Path("/proc/self/ns/ipc").readlink())
    except OSError:
        return ""


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NEEDED_PROGRAMS: Final = tuple([program for program, _, _ in _PROGRAMS])
"""What a sandbox needs."""


def recall(file: Path, environ: Mapping[str, str]) -> Available | None:
    """Return the cached result of the probe.

    It is None if there is none, or something of it has changed.

    A wrong entry prevents a server's start, and never removes its sandbox.
    """
    with suppress(OSError, orjson.JSONDecodeError):
        said = orjson.loads(read_regular(file))
        if isinstance(said, dict) and said.get("machine") == _machine(environ):
            found = which("srt", environ)
            return None if found is None else Available((os.path.abspath(found),))  # noqa: PTH100
    return None


def remember(file: Path, environ: Mapping[str, str], _found: Available) -> None:
    """Cache a success. A failed write costs another probe.

    A failure is not cached, because a missing program may be installed later.
    """
    content = orjson.dumps({"machine": _machine(environ)})
    with suppress(OSError):
        if file.exists() and read_regular(file) == content:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, content)


def _machine(environ: Mapping[str, str]) -> list[str]:
    """Return the state that a sandbox depends on: this boot, this user, and each program."""
    with suppress(OSError):
        found = [_BOOT.read_text(encoding="ascii").strip(), str(os.getuid())]
        places = [which(one, environ) for one in NEEDED_PROGRAMS]
        for path in (*places, str(WRAPPER)):
            if path is None:
                return [os.urandom(8).hex()]
            status = os.stat(path)  # noqa: PTH116  the numbers of the file behind a link
            found.append(f"{os.path.realpath(path)} {status.st_mtime_ns} {status.st_size}")
        return found
    return [os.urandom(8).hex()]
