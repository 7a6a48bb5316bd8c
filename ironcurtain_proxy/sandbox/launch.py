"""The launch of a server's command: in its sandbox, or unconfined and marked so."""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, field

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox import inside, relay
from ironcurtain_proxy.sandbox.directory import (
    Launch,
    SandboxSettings,
    make_directory,
    prepare,
    sealed,
    sealed_content,
)
from ironcurtain_proxy.sandbox.installed import beyond_agents
from ironcurtain_proxy.sandbox.private_tmp import PrivateFolder, PrivateTmp, steady
from ironcurtain_proxy.sandbox.profile import SandboxProfile, refused_pairs
from ironcurtain_proxy.sandbox.shell_setup import Credentials, ShellSetup, Views, encoded

_ALONE: Final = "IRONCURTAIN_INSIDE_"
"""Before the name of a variable that `inside` gives to the server, and that srt does not heed."""
NODE_PROXY: Final = str(Path(__file__).with_name("node_proxy.cjs"))
"""What Node.js loads first: the same for versions that know no such variable."""
_OPTIONS: Final = "NODE_OPTIONS"
MODULES: Final = "PYTHONPATH"
_POOLS: Final = str(Path(__file__).with_name("pools"))
"""What Python imports first."""
_CHANGE_DIRECTORY: Final = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')
"""Into the directory of the first word, and run the others. `env -C` is not on every system."""


class Mounted(Protocol):
    """A directory that is mounted over another one inside the sandbox."""

    def mount(self) -> tuple[str, ...]:
        """Return the arguments of bubblewrap."""

    def carry(self) -> tuple[str, ...]:
        """Carry over what was approved, and return what was not, each with the reason."""


class Confinement(Struct, frozen=True):
    """The sandbox of a server."""

    command: tuple[str, ...]
    """Runs srt."""
    profile: SandboxProfile
    temporary: str | None = None
    """The directory of the server's temporary files; None: its working directory."""
    gate: int | None = None
    """The port of a proxy of ours on this machine that refuses every host; None: srt's own proxy
    lets it reach what the profile allows."""
    private: PrivateTmp | None = None
    """The server's own `/tmp`, or None if it sees the machine's."""
    views: Views | None = None
    """Where the commands of our own shell have views; None: all of the server runs in a sandbox."""
    folders: tuple[PrivateFolder, ...] = ()
    """Folders of the home directory that it has for itself."""
    credentials: Credentials | None = None
    """The user's credentials that stay hidden, or None if its entry says itself what is closed."""
    stages: tuple[Mounted, ...] = ()
    """The private directories that hold the paths of an approval, for a second instance."""
    lent: tuple[str, ...] = ()
    """Further mounts, as arguments of bubblewrap, for one command of a second instance."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the server needs in a sandbox, unless its entry sets them."""

    @property
    def writable(self) -> tuple[str, ...]:
        """The directories of the machine that it may write in."""
        own = () if self.private is None else (self.private.directory,)
        return (*self.profile.allow_write, *own, *[one.directory for one in self.folders])

    def mounts(self, sockets: str) -> tuple[str, ...]:
        """Return the arguments of bubblewrap that follow the mount of the root.

        Args:
            sockets: the directory of the sandbox's own sockets.
        """
        own = () if self.private is None else self.private.mounts(sockets)
        folders = [word for one in self.folders for word in one.mount()]
        return (*own, *folders, *self.lent_mounts)

    @property
    def lent_mounts(self) -> tuple[str, ...]:
        """The mounts of what an approval opens, as arguments of bubblewrap."""
        return (*self.lent, *[word for one in self.stages for word in one.mount()])


def watched(confined: Mapping[str, Confinement]) -> Mapping[str, Confinement]:
    """Return the confinements in which files of the workspace are changed at once.

    A command in a view changes nothing until the proxy brings it in.
    """
    return {name: one for name, one in confined.items() if one.views is None}


def with_own_programs(environ: Mapping[str, str], workspace: RealPath) -> dict[str, str]:
    """Return variables by which srt finds its programs beyond the workspace.

    What runs in the sandbox gets the whole `PATH`.
    """
    own = beyond_agents(environ, workspace)
    whole = environ.get("PATH", own["PATH"])
    return own if whole == own["PATH"] else {**own, f"{_ALONE}PATH": whole}


def confine(spec: ServerSpec, confinement: Confinement) -> Launch:
    """Return the way to run a server.

    Args:
        spec: the server, with a working directory of its own.
        confinement: its sandbox.

    Raises:
        ConfigurationError: its sandbox cannot be as it is configured.
        OSError: no memory, no descriptor or no space for a directory left.
    """
    if confinement.views is not None:
        return _own_shell(spec, confinement, confinement.views)
    settings = SandboxSettings.of(
        confinement.profile, confinement.gate, is_private=confinement.private is not None
    )
    directory = make_directory()
    try:
        own_tmp = confinement.private
        prepare(directory.path, confinement.mounts(directory.path))
        descriptor = sealed(settings)
    except OSError:
        directory.remove()
        raise
    # srt has its sockets in TMPDIR, and gives the server another, which usually does not exist and
    # is shared where it does.
    temporary = own_tmp.places[0] if own_tmp else confinement.temporary or spec.cwd
    own = {} if temporary is None else {"CLAUDE_CODE_TMPDIR": temporary}
    further = steady("" if own_tmp is None else own_tmp.places[0])
    return Launch(
        # Without `--` srt would take the server's own options for its own.
        (
            *(*confinement.command, "-s", f"/proc/self/fd/{descriptor}", "--"),
            *(() if spec.cwd is None else (*_CHANGE_DIRECTORY, spec.cwd)),
            *_relaying(confinement.profile),
            *_through(confinement.profile),
            *(spec.command, *spec.args),
        ),
        sandboxed=True,
        environment={
            **{name: value for name, value in further.items() if name not in spec.env},
            **{
                _ALONE + name: value
                for name, value in {
                    **confinement.variables,
                    **_by_proxy(confinement, spec),
                }.items()
                if name not in spec.env or name in {_OPTIONS, MODULES}
            },
            **own,
            "TMPDIR": directory.path,
        },
        descriptors=(descriptor,),
        directory=directory,
    )


def _by_proxy(confinement: Confinement, spec: ServerSpec) -> Mapping[str, str]:
    """Return the variables that make Node.js use the sandbox's proxy, and Python no sockets.

    Empty where the profile hides the files that do so.
    """
    if not confinement.profile.may_read(RealPath.from_text(os.path.realpath(NODE_PROXY))):
        return {}
    quoted = NODE_PROXY.replace("\\", "\\\\").replace('"', '\\"')
    options, modules = (
        {**confinement.variables, **spec.env}.get(o, "") for o in (_OPTIONS, MODULES)
    )
    return {
        "NODE_USE_ENV_PROXY": "1",
        _OPTIONS: f'--require="{quoted}" {options}'.strip(),
        MODULES: with_pools(modules),
    }


def with_pools(modules: str) -> str:
    """Return a `PYTHONPATH` by which Python starts processes without a socket; see `pools`."""
    return os.pathsep.join([_POOLS, modules] if modules else [_POOLS])


def _own_shell(spec: ServerSpec, confinement: Confinement, views: Views) -> Launch:
    """Return the way to run our own shell, which confines each command by itself."""
    setup = ShellSetup(
        views=views,
        profile=confinement.profile,
        private=confinement.private,
        srt=confinement.command,
        credentials=confinement.credentials,
        lent=confinement.lent_mounts,
    )
    descriptor = sealed_content(encoded(setup))
    return Launch(
        (spec.command, *spec.args, str(descriptor)), sandboxed=True, descriptors=(descriptor,)
    )


def _through(profile: SandboxProfile) -> tuple[str, ...]:
    """Return the program that bounds the server, closes hidden directories and becomes the server.

    Empty where the profile hides a file that the program needs.
    """
    needed = (sys.executable, sys.base_prefix, inside.__file__)
    real = [RealPath.from_text(os.path.realpath(path)) for path in needed]
    named = [RealPath.from_text(path) for path in needed]
    if not all(map(profile.may_read, (*real, *named))):
        return ()
    limits = (str(profile.limits.processes), str(profile.limits.open_files))
    pairs = refused_pairs(platform.machine())
    calls = "-" if pairs is None else pairs.hex()
    return (sys.executable, "-I", "-S", inside.__file__, *limits, calls, *profile.deny_read, "--")


def _relaying(profile: SandboxProfile) -> tuple[str, ...]:
    """Return the program that lets the server reach services on its loopback.

    Empty without services.
    """
    if not profile.services:
        return ()
    return (sys.executable, "-I", "-S", relay.__file__, *profile.services, "--")
