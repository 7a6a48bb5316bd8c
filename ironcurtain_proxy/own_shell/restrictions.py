"""The restrictions around one command of our own shell."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.downstream.gate import Gate
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox import closed_network
from ironcurtain_proxy.sandbox.closure import closure, filter_of_calls
from ironcurtain_proxy.sandbox.launch import Confinement, Launch, confine
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.shell_setup import ShellSetup

_PORT: Final = 3128
_SECONDS: Final = 20.0
_PROXY: Final = f"http://127.0.0.1:{_PORT}"
_TO_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL: Final = "localhost,127.0.0.1,::1"
_SSH: Final = (
    "ssh -o ControlMaster=no -o ControlPath=none "
    f"-o ProxyCommand='socat - PROXY:127.0.0.1:%h:%p,proxyport={_PORT}'"
)
_QUIET: Final = {"npm_config_update_notifier": "false", "NO_UPDATE_NOTIFIER": "1"}


class Walled(Struct, frozen=True, kw_only=True):
    """A command with its restrictions."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    """What the process inherits; our copies are closed by `close`."""
    namespaces: str = "-"
    launch: Launch | None = None

    def close(self) -> None:
        """Close our copies of the descriptors that are this command's alone."""
        if self.launch is not None:
            self.launch.close()
        elif self.descriptors:
            os.close(self.descriptors[-1])

    def remove(self) -> None:
        """Remove what its sandbox had on the disk."""
        if self.launch is not None:
            self.launch.remove()


class CommandRestrictions:
    """The restrictions of all commands of one process."""

    def __init__(self, setup: ShellSetup) -> None:
        """Make the network that leads nowhere, unless hosts are allowed.

        Raises:
            OSError: it cannot be made.
        """
        self._setup = setup
        self.gate: Gate | None = None
        self._spaces: tuple[int, ...] = ()
        self._profile = setup.profile
        self._stamp: tuple[tuple[int, int], ...] = ()
        """The state of the places with credentials when `_profile` was made."""
        self._filter = Path(setup.views.directory, "filter") if setup.views.directory else None
        if not setup.views.directory or setup.profile.allowed_domains:
            return
        if self._filter is not None:
            program = filter_of_calls()
            if program is None:
                raise OSError(0, "no filter of system calls is known for this machine")
            if not self._filter.exists():
                self._filter.write_bytes(program)
        user, network, listener = _closed_network()
        self.gate = Gate(listener)
        self._spaces = (user, network)

    def around(self, command: Sequence[str], directory: str) -> Walled:
        """Return a command with its restrictions.

        Raises:
            OSError: there is no memory, or no descriptor left.
        """
        if not self._setup.views.directory:
            return Walled(argv=command, environment=dict(os.environ))
        if self._setup.profile.allowed_domains:
            return self._by_srt(command, directory)
        assert self._filter is not None  # noqa: S101  made with the network
        profile = self.profile()
        calls = os.open(self._filter, os.O_RDONLY | os.O_CLOEXEC)
        restrictions = closure(profile, self._setup.private, network=False)
        user, network = self._spaces
        return Walled(
            argv=[*restrictions, "--seccomp", str(calls), "--chdir", directory, "--", *command],
            environment={**os.environ, **_QUIET, **self._own_places(), **_to_gate()},
            # Root enters no user namespace, and the command must not inherit one.
            descriptors=(network, calls) if os.geteuid() == 0 else (user, network, calls),
            namespaces=f"{'-' if os.geteuid() == 0 else user},{network}",
        )

    def profile(self) -> SandboxProfile:
        """Return what a command that starts now may touch: no credential that is there by now."""
        hidden = self._setup.credentials
        if hidden is not None and self._stamp != (stamp := hidden.stamp()):
            begun = self._setup.profile
            later = [one for one in hidden.existing() if begun.may_read(RealPath.from_text(one))]
            self._profile = replace(begun, deny_read=(*begun.deny_read, *later))
            self._stamp = stamp
        return self._profile

    def _by_srt(self, command: Sequence[str], directory: str) -> Walled:
        spec = ServerSpec(
            name="shell",
            annotations="shell",
            command=command[0],
            args=tuple(command[1:]),
            cwd=directory,
        )
        setup = self._setup
        launch = confine(spec, Confinement(setup.srt, self.profile(), private=setup.private))
        return Walled(
            argv=launch.argv,
            environment={**os.environ, **launch.environment},
            descriptors=launch.descriptors,
            launch=launch,
        )

    def _own_places(self) -> Mapping[str, str]:
        if self._setup.private is None:
            return {}
        place = self._setup.private.places[0]
        return {"TMPDIR": place, "npm_config_cache": f"{place}/npm"}


def _to_gate() -> dict[str, str]:
    """Return the variables that lead programs to the gate, which notes whom they ask for."""
    upper = {**dict.fromkeys(_TO_PROXY, _PROXY), "NO_PROXY": _LOCAL}
    return {
        **upper,
        **{name.lower(): value for name, value in upper.items()},
        "GIT_SSH_COMMAND": _SSH,
    }


def _closed_network() -> tuple[int, int, socket.socket]:
    """Return the namespaces of a network that leads nowhere, and a listener in it.

    Raises:
        OSError: it cannot be made.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_SECONDS)
        subprocess.run(  # noqa: S603  a program of ours
            [sys.executable, "-I", "-S", closed_network.__file__, str(_PORT)],
            check=False,
            stdin=theirs.fileno(),
            timeout=_SECONDS,
        )
        theirs.close()
        said, found, _, _ = socket.recv_fds(ours, 256, 3)
    if len(found) != 3:  # noqa: PLR2004  user, network, listener
        raise OSError(0, f"no network for commands: {said[1:].decode(errors='replace')}")
    listener = socket.socket(fileno=found[2])
    listener.settimeout(0)
    return found[0], found[1], listener
