"""How each server is confined, from its entry, the settings and the policy.

Only a session with a sandbox needs it.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ironcurtain_proxy.config.policy.policy_loading import own_code
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.servers.recognition import (
    PackNeeds,
    needs_of,
    recognised,
    recognised_pack,
)
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.credentials import keys, names_needed_by, places_of
from ironcurtain_proxy.downstream.starting import make_private
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import CHANGES
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath, list_of
from ironcurtain_proxy.sandbox.directory import SandboxSettings as SrtSettings
from ironcurtain_proxy.sandbox.installed import (
    installation_of,
    is_confined,
)
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.private_tmp import (
    SUFFIX,
    PrivateFolder,
    PrivateTmp,
    make_folder,
    named_paths,
    private_tmp,
)
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.profile import SandboxProfile, SandboxSurroundings, profile_of
from ironcurtain_proxy.sandbox.shell_setup import (
    Credentials,
    FoundPlaces,
    hidden_in,
    present,
)
from ironcurtain_proxy.wiring.confinement import MEMORY, own_place


def confinements(
    sandbox: Available | None,
    specs: Sequence[ServerSpec],
    settings: Settings,
    policy: Policy,
    *,
    make: bool = True,
) -> Mapping[str, Confinement]:
    """Return the confinement of each server that has one.

    Args:
        sandbox: this machine's, or None if nobody is confined.
        specs: without launchers, with their working directories, which exist.
        settings: what the operator said.
        policy: what may be allowed, and what is closed.
        make: make the mailboxes, so that they can be closed, or False if nothing is written.

    Raises:
        ConfigurationError: a server's sandbox cannot be as it is configured.
    """
    if sandbox is None:
        return {}
    reviewers = settings.auto_confirm
    mailboxes = (settings.mailbox_dir, *(() if reviewers is None else reviewers.mailboxes))
    for mailbox in mailboxes if make else ():
        with suppress(OSError):
            # A directory that does not exist cannot be closed, and requests in it would be
            # readable.
            mailbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    closed = _real([settings.home / key for key in keys()])
    writable = {spec.name: _writable(spec, settings, policy) for spec in specs}
    open_ = [*_real([settings.home]), *[path for paths in writable.values() for path in paths]]
    own = [path for path in _own(settings, policy, open_) if path not in closed]
    confined: dict[str, Confinement] = {}
    home = str(real(settings.home))
    # A client may start the proxy without the variable.
    places = places_of(home, {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ})
    there = present(places)
    shells = _shells(settings)
    for spec in specs:
        if not is_confined(spec):
            _refuse_if_gone(spec, settings)
            continue
        needed, needs = _needed(spec, settings), _needs(spec, settings)
        around = SandboxSurroundings(
            home=str(settings.home),
            own=tuple(own),
            code=_real(own_code()),
            keys=closed,
            credentials=hidden_in(home, there, needed),
            real=lambda text: str(real(Path(text))),
            workspace=None if settings.workspace is None else str(settings.workspace),
            writable=writable[spec.name],
            never=needs.closed,
        )
        profile = profile_of(spec, around)
        try:
            SrtSettings.of(profile)
        except ConfigurationError as error:
            raise ConfigurationError(f'server "{spec.name}": {error}') from None
        is_shell = spec.name in shells
        private = _private(spec, settings, profile, sandbox, make=make) if is_shell else None
        confined[spec.name] = Confinement(
            sandbox.command,
            profile,
            private=private,
            folders=_folders(spec, settings, profile, needs, make=make),
            credentials=_credentials(spec, profile, places, needed),
            variables=needs.variables,
        )
    return confined


def _needs(spec: ServerSpec, settings: Settings) -> PackNeeds:
    """Return what a server's pack says that it needs.

    By its command as written: an installed program may be called otherwise than its package.
    """
    written = next(one for one in settings.servers if one.name == spec.name)
    started = (written.command, written.args)
    return needs_of(recognised_pack(*started) or recognised(*started) or written.annotations)


def _needed(spec: ServerSpec, settings: Settings) -> list[str]:
    """Return the paths that a server's entry names: these are its own to read."""
    words = (spec.command, *spec.args, *spec.env.values())
    named = [str(real(Path(path))) for path in named_paths(words)]
    pack = recognised_pack(spec.command, spec.args)
    named += [str(real(settings.home / one.path)) for one in names_needed_by(f"server:{pack}")]
    named += [] if settings.workspace is None else [str(settings.workspace)]
    return [*named, *([] if spec.cwd is None else [spec.cwd])]


def _credentials(
    spec: ServerSpec, profile: SandboxProfile, places: FoundPlaces, needed: Sequence[str]
) -> Credentials | None:
    """Return what has to stay hidden, or None if the entry has a list of its own."""
    files = spec.sandbox.get("filesystem") if isinstance(spec.sandbox, Mapping) else None
    if isinstance(files, Mapping) and "denyRead" in files:
        return None
    opened = [*profile.allow_read, *profile.allow_write] if isinstance(files, Mapping) else []
    return Credentials.of(places, [*needed, *opened])


def _folders(
    spec: ServerSpec, settings: Settings, profile: SandboxProfile, needs: PackNeeds, *, make: bool
) -> tuple[PrivateFolder, ...]:
    """Return the folders of the home directory that a server has for itself.

    None where the entry opens or closes the folder itself, and none that would hide the workspace,
    what the sandbox closes, or the home directory.
    """
    own = settings.state_dir / "private" / f"{spec.name}.home"
    kept = (*profile.deny_read, *profile.allow_read, *profile.allow_write, str(real(settings.home)))
    found: list[PrivateFolder] = []
    for name in dict.fromkeys((*needs.private, *_named_private(spec))):
        place = real(settings.home / name)
        hides = any(RealPath.from_text(one).is_within(place) for one in kept)
        if hides or profile.may_write(place) or not profile.may_read(place):
            continue
        folder = PrivateFolder(str(own / name), str(place))
        if make:
            try:
                make_folder(folder)
            except OSError:
                # The server's own error says what it could not write.
                continue
        found.append(folder)
    return tuple(found)


def _named_private(spec: ServerSpec) -> tuple[str, ...]:
    files = spec.sandbox.get("filesystem") if isinstance(spec.sandbox, Mapping) else None
    named = list_of(files.get("private")) if isinstance(files, Mapping) else ()
    return tuple([one.removeprefix("~/") for one in named if isinstance(one, str)])


def _shells(settings: Settings) -> frozenset[str]:
    """Return the servers of which a tool runs commands."""
    declared = settings.overlay.capabilities.declarations.values()
    ids = [one.tool_id for one in declared if one.command_argument is not None]
    return frozenset([one.partition("/")[0] for one in ids if "/" in one])


def _private(
    spec: ServerSpec, settings: Settings, profile: SandboxProfile, sandbox: Available, *, make: bool
) -> PrivateTmp | None:
    directory = settings.session_dir / f"{spec.name}{SUFFIX}"
    words = [*sandbox.command, spec.command, *spec.args, *spec.env.values(), *os.get_exec_path()]
    needed = [*named_paths(words), str(settings.home), spec.cwd or "/"]
    found = private_tmp(str(directory), profile, needed)
    if found is not None and make:
        try:
            make_private(directory)
        except OSError:
            # Without the directory the server's writes are refused, and reported as refused.
            return None
    return found


def _refuse_if_gone(spec: ServerSpec, settings: Settings) -> None:
    """Refuse if a program that `find_sandbox` found was removed meanwhile."""
    if spec.sandbox is None and settings.sandbox_policy == "enforce":
        raise ConfigurationError(
            f'server "{spec.name}" cannot be confined: run {installation_of(spec)}'
        )


def _own(settings: Settings, policy: Policy, opened: Sequence[str]) -> tuple[str, ...]:
    """Return the proxy's own paths. A log's directory counts, unless others use it, too."""
    found = [settings.state_dir, settings.mailbox_dir]
    found += [Path(str(protected.path)) for protected in policy.protected_paths]
    workspace = [] if settings.workspace is None else [str(settings.workspace)]
    for log in (settings.audit.path, settings.session_log):
        (directory,) = _real([log.parent])
        shared = any(
            RealPath.from_text(path).is_within(RealPath.from_text(directory))
            for path in (*opened, *workspace, tempfile.gettempdir())
        )
        found += [*log.parent.glob(f"{log.name}*")] if shared else [log.parent]
    return _real(found)


def _writable(spec: ServerSpec, settings: Settings, policy: Policy) -> tuple[str, ...]:
    """Return the directories that a server owns, or that rules may let it change.

    What does not exist cannot be opened.
    """
    places = [
        Path(str(rule.paths.within))
        for rule in policy.rules
        if rule.paths is not None and _may_change(rule, spec)
    ]
    own = own_place(spec, settings)
    if spec.env.get(MEMORY, "").startswith(f"{own}/"):
        places.append(own)
    return _real([one for one in places if os.path.isdir(one)])  # noqa: PTH112  raises nothing


def _may_change(rule: Rule, spec: ServerSpec) -> bool:
    if rule.effect == "deny" or rule.paths is None:
        return False
    applies = rule.servers is None or spec.annotations in rule.servers
    return applies and not rule.paths.roles.isdisjoint(CHANGES)


def _real(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(real(path)) for path in paths))
