"""Directories of sandboxes: their sockets, settings and wrapper, and what was left.

A directory for the sockets of one sandbox: made before it, removed after it.

srt puts its sockets into TMPDIR, and leaves them there when it is killed. A socket's path holds 107
bytes at most, and a comma or a colon in it has a meaning for socat. So srt could not start where
TMPDIR is too long or holds such a character.

Each process that needs the directory holds a lock on it, and the kernel releases the lock however
the process dies. A directory without a lock is abandoned: `abandoned` removes it.

The wrapper that starts bubblewrap, and its files beside the sandbox's sockets.

The remains of sandboxes whose proxy and guardians were killed.

Each start looks for directories of sockets that nobody has locked: their proxy and their guardian
are dead. Processes that still run in such a sandbox are killed, and the directory is removed.

The places are shared, so that anybody may have left a trap there. A directory is touched only if
its name, owner and mode are ours, and if it holds only what srt makes there. No link is followed.
The kernel says whether a directory is locked, and by whom.

A profile as srt's settings, passed without a file on the disk.

srt ignores unknown keys, so a misspelt key would be a hole: only settings built here go to it. A
sealed file in memory cannot be changed, and is gone with its processes.
"""

import errno
import fcntl
import os
import platform
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from msgspec import Struct, field

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, lazy
from ironcurtain_proxy.private_files import closed_after

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.profile import SandboxProfile

_SHORT: Final = "/tmp"  # noqa: S108  where everything fits
_PREFIX: Final = "ironcurtain-srt-"
_LONGEST: Final = 107 - len(f"/{_PREFIX}01234567") - len("/claude-http-0123456789abcdef.sock")
_PLAIN: Final = lazy(r"[A-Za-z0-9/._-]+", re.ASCII)
_TRIES: Final = 20
NAME: Final = lazy(rf"{_PREFIX}[a-z0-9_]{{8}}", re.ASCII)
"""The names of such directories."""
OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""The flags for opening such a directory."""


class SocketDirectory(Struct, eq=False):
    """A directory of this proxy, locked until it is removed or the proxy ends."""

    path: str
    _lock: int

    def remove(self) -> None:
        """Remove the directory with its content. A missing directory is no error."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def make_directory() -> SocketDirectory:
    """Return a new directory, for this user only.

    Raises:
        OSError: none can be made.
    """
    base = places()[0]
    for _ in range(_TRIES):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        try:
            return SocketDirectory(path, _locked(path))
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            if error.errno not in (errno.ENOENT, errno.EAGAIN):
                raise
    raise OSError(errno.EAGAIN, f"somebody locks every new directory in {base}")


def places() -> tuple[str, ...]:
    """Return the parents of such directories.

    The present one, and the one if TMPDIR does not suit.
    """
    base = os.path.realpath(tempfile.gettempdir())
    fits = len(base) <= _LONGEST and _PLAIN.fullmatch(base) is not None
    return (base, _SHORT) if fits and base != _SHORT else (_SHORT,)


def _locked(path: str) -> int:
    """Return a lock on a directory that was just made.

    Raises:
        OSError: somebody took it for abandoned meanwhile (ENOENT, EAGAIN), or there is no
            descriptor left.
    """
    lock = os.open(path, OPEN)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            # Without locks on this file system, nobody can look for abandoned directories either.
            return lock
        # If somebody locked it before us, it was removed or replaced.
        if not os.path.samestat(os.fstat(lock), os.lstat(path)):
            raise FileNotFoundError(errno.ENOENT, "removed", path)
    except OSError:
        os.close(lock)
        raise
    return lock


# --- wrapper


WRAPPER: Final = Path(__file__).with_name("bwrap")
"""The wrapper program; its own comments describe what it adds."""
CALLS: Final = "calls.bpf"
"""The filter, in the directory of the sockets."""
MOUNTS: Final = "mounts"
"""The arguments for the first mounts, in the same directory."""


def prepare(directory: str, mounts: Sequence[str] = ()) -> None:
    """Write the filter of system calls and the first mounts to the files that the wrapper reads.

    Args:
        directory: the sandbox's own directory, which is srt's TMPDIR.
        mounts: arguments of bubblewrap that follow the mount of the root.

    Raises:
        OSError: it cannot be written.
    """
    from ironcurtain_proxy.sandbox.profile import refused_calls  # noqa: PLC0415  a start removes remains alone

    program = refused_calls(platform.machine())
    if program is not None:
        Path(directory, CALLS).write_bytes(program)
    if mounts:
        content = b"".join(os.fsencode(one) + b"\0" for one in mounts)
        Path(directory, MOUNTS).write_bytes(content)


# --- abandoned


_SOCKET: Final = lazy(r"(?:claude|srt)-[A-Za-z0-9-]{1,64}\.sock", re.ASCII)
_FOLDER: Final = lazy(r"claude-empty-[A-Za-z0-9]{1,16}|empty", re.ASCII)
"""srt's, and where it is tried."""


def remove_abandoned() -> None:
    """Remove the directories of sandboxes whose proxy is dead, and end the processes in them.

    A directory that cannot be read or removed stays, without an error.
    """
    for place in places():
        with suppress(OSError), _opened(place) as parent:
            for name in filter(NAME.fullmatch, os.listdir(parent)):  # noqa: PTH208  of a descriptor
                with suppress(OSError):
                    _remove_if_abandoned(place, parent, name)


def _remove_if_abandoned(place: str, parent: int, name: str) -> None:
    with _opened(name, parent) as directory:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid() or status.st_mode & 0o777 != 0o700:  # noqa: PLR2004  ours
            return
        # Fails while a proxy or a guardian holds it.
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.scandir(directory) as entries:
            found = list(entries)
        if not all(map(_is_of_a_sandbox, found)):
            return
        kill_all_with(f"{place}/{name}")
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(entry.name, dir_fd=directory)
        # Of another directory that somebody may have put there meanwhile, nothing is removed.
        os.rmdir(name, dir_fd=parent)


def _is_of_a_sandbox(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISSOCK(mode):
        return _SOCKET.fullmatch(entry.name) is not None
    if stat.S_ISREG(mode):
        return entry.name == CALLS
    return stat.S_ISDIR(mode) and _FOLDER.fullmatch(entry.name) is not None


def kill_all_with(directory: str) -> None:
    """Kill all processes whose `TMPDIR` is a directory: no other processes know its name.

    Processes within the sandbox end with the process outside that made it.
    """
    wanted = b"TMPDIR=" + os.fsencode(directory)
    for entry in os.listdir("/proc"):  # noqa: PTH208  names are enough
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                _kill_if_with(int(entry), wanted)


def _kill_if_with(pid: int, variable: bytes) -> None:
    # Whatever was looked at is what is killed: the descriptor stands for this very process.
    with closed_after(os.pidfd_open(pid)) as process:
        proc = Path(f"/proc/{pid}")
        ours = proc.stat().st_uid == os.geteuid()
        if ours and variable in (proc / "environ").read_bytes().split(b"\0"):
            signal.pidfd_send_signal(process, signal.SIGKILL)


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    with closed_after(os.open(name, OPEN, dir_fd=parent)) as descriptor:
        yield descriptor


# --- settings


_SHARED_TEMPORARY: Final = "/tmp/claude"  # noqa: S108  srt's own, which all its sandboxes share
_DOMAIN: Final = lazy(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*",
    re.ASCII | re.IGNORECASE,
)
_SEALS: Final = ("F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE")


class SandboxSettings(Struct, frozen=True):
    """The settings of srt."""

    fields: Mapping[str, Json]

    @classmethod
    def of(
        cls, profile: "SandboxProfile", gate: int | None = None, *, is_private: bool = False
    ) -> "SandboxSettings":
        """Return the settings of a profile.

        Args:
            profile: what is let.
            is_private: nothing of the machine's `/tmp` is shown.
            gate: the port of the proxy that stands in the place of srt's, or None if it is srt's.

        Raises:
            ConfigurationError: a domain that srt would not take as it was meant.
        """
        for domain in (*profile.allowed_domains, *profile.denied_domains):
            _check_domain(domain)
        return cls(
            {
                "network": {
                    "allowedDomains": [*profile.allowed_domains, *profile.services],
                    "deniedDomains": [*profile.denied_domains],
                    **({} if gate is None else {"httpProxyPort": gate, "socksProxyPort": gate}),
                },
                "filesystem": {
                    "denyRead": [
                        *profile.deny_read,
                        *([_SHARED_TEMPORARY] if is_private else ()),
                    ],
                    "allowRead": [*profile.allow_read],
                    "allowWrite": [*profile.allow_write],
                    "denyWrite": [*profile.deny_write, _SHARED_TEMPORARY],
                },
                "bwrapPath": str(WRAPPER),
            }
        )


def sealed(settings: SandboxSettings) -> int:
    """Return a descriptor to read the settings from; nobody can change them. The caller closes it.

    Raises:
        OSError: there is no memory, or no descriptor left.
    """
    return sealed_content(orjson.dumps(settings.fields))


def sealed_content(content: bytes) -> int:
    """Return a descriptor to read some content from, which nobody can change. The caller closes it.

    Raises:
        OSError: there is no memory, or no descriptor left.
    """
    descriptor = os.memfd_create("settings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        seals = 0
        for name in _SEALS:
            seals |= getattr(fcntl, name)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_domain(domain: str) -> None:
    bare = domain.removeprefix("*.")
    wide = domain.startswith("*.") and "." not in bare
    if _DOMAIN.fullmatch(domain) is not None and "." not in domain and domain != "localhost":
        raise ConfigurationError(
            f'sandbox.network: "{domain}" has no dot, and the sandbox takes no such host: use its '
            "full name, such as HOST.internal"
        )
    if _DOMAIN.fullmatch(domain) is None or wide:
        raise ConfigurationError(
            f'sandbox.network: "{domain}" is no host: write example.com or *.example.com, '
            "without scheme, port or path"
        )


# --- launch


class Launch(Struct, frozen=True):
    """The command to run instead of a server's own."""

    argv: tuple[str, ...]
    sandboxed: bool
    """Whether the started process is confined, for the audit log."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables it needs besides the server's."""
    descriptors: tuple[int, ...] = ()
    """Descriptors that the process inherits; closed by `close`."""
    directory: SocketDirectory | None = None
    """The directory that `remove` removes after the end of the process. The sandbox is made there:
    srt makes empty files where the directory that it is started in has no `.bashrc`, `.vscode` and
    the like, and a workspace would be full of them while the server runs."""

    def close(self) -> None:
        """Close our copies, once the process has been started or could not be."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the files of the sandbox, after the process has ended or could not be started."""
        if self.directory is not None:
            self.directory.remove()


def unsafe_no_sandbox(spec: ServerSpec) -> Launch:
    """Return the bare command: the server may do whatever the user may do."""
    return Launch((spec.command, *spec.args), sandboxed=False)
