"""The sandbox of each server, from the settings, the policy and this machine."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

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
    Machine,
    installation_of,
    is_confined,
    why_unconfined,
    without_launcher,
)
from ironcurtain_proxy.sandbox.launch import Confinement, beyond_agents
from ironcurtain_proxy.sandbox.private_tmp import (
    SUFFIX,
    PrivateFolder,
    PrivateTmp,
    make_folder,
    named_paths,
    private_tmp,
)
from ironcurtain_proxy.sandbox.probe import Available, probe, recall, remember
from ironcurtain_proxy.sandbox.profile import SandboxProfile, SandboxSurroundings, profile_of
from ironcurtain_proxy.sandbox.shell_setup import (
    Credentials,
    FoundPlaces,
    hidden_in,
    present,
)

_MEMORY: Final = "MEMORY_FILE_PATH"
"""The variable with the file of the public memory server."""
ROOT_MEANS: Final = (
    "confined servers read every file of the machine that is not closed to them, and the kernel "
    "treats them as root; run ironcurtain-proxy as an ordinary user"
)


def with_own_path(
    specs: Sequence[ServerSpec],
    confined: Mapping[str, Confinement],
    environ: Mapping[str, str],
    workspace: RealPath | None,
) -> tuple[Sequence[ServerSpec], Mapping[str, Confinement]]:
    """Give servers the whole `PATH`: confined ones inside their sandbox alone.

    The sandbox itself finds its programs on that of `beyond_agents`.
    """
    path = environ.get("PATH", "")
    if path in {"", beyond_agents(environ, workspace)["PATH"]}:
        return specs, confined
    inside = {
        name: replace(one, variables={"PATH": path, **one.variables})
        for name, one in confined.items()
    }
    return [
        spec
        if spec.name in confined and spec.builtin is None
        else replace(spec, env={"PATH": path, **spec.env})
        for spec in specs
    ], inside


def find_sandbox(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> Available | None:
    """Return the sandbox of this machine; None if no server wants one, or there is none.

    Args:
        settings: what the operator said.
        environ: where programs are found.
        say: told once, in a line, of servers that run unconfined.

    Raises:
        ConfigurationError: there has to be one and is not.
    """
    machine = machine_of(settings, environ)
    specs = [without_launcher(spec, machine) for spec in settings.servers]
    bare = [
        as_written
        for as_written, spec in zip(settings.servers, specs, strict=True)
        if spec.sandbox is None and not is_confined(spec)
    ]
    if bare:
        why = [f"{spec.name}: {why_unconfined(spec, machine)}" for spec in bare]
        _refuse_or_say(settings, why, say)
    confined = [spec.name for spec in specs if is_confined(spec)]
    if not confined:
        return None
    cache = settings.state_dir / "sandbox.json"
    own = beyond_agents(environ, settings.workspace)
    found = recall(cache, own) or probe(own)
    if isinstance(found, Available):
        remember(cache, own, found)
        return found
    missing = "; ".join([f"{one.name}: {one.why} ({one.remedy})" for one in found.missing])
    _refuse_or_say(settings, [f"{', '.join(confined)}: {missing}"], say)
    return None


def say_what_root_means(sandbox: Available | None, say: Callable[[str], None]) -> None:
    """Warn an operator who runs the proxy as root of the limits of its sandboxes."""
    if sandbox is not None and os.geteuid() == 0:
        say(f"running as root: {ROOT_MEANS}")


def confined_servers(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> Mapping[str, bool]:
    """Return whether `serve` would start each server in a sandbox. For reports: never refuses."""
    found = find_sandbox(replace(settings, sandbox_policy="warn"), environ, say)
    machine = machine_of(settings, environ)
    specs = [without_launcher(spec, machine) for spec in settings.servers]
    return {spec.name: found is not None and is_confined(spec) for spec in specs}


def machine_of(settings: Settings, environ: Mapping[str, str]) -> Machine:
    """Return the directories where programs of this operator may be installed."""
    return Machine(
        state_dir=settings.state_dir,
        home=settings.home,
        workspace=settings.workspace,
        environ=environ,
    )


def with_own_place(spec: ServerSpec, settings: Settings, *, make: bool = True) -> ServerSpec:
    """Return a server with a writable place, if it keeps files beside its own program.

    The place does not depend on a sandbox of this machine, so that its files are found again. A
    trusted server, and one with a configured place, stay as they are.
    """
    if _MEMORY in spec.env or not keeps_own_place(spec):
        return spec
    place = _own_place(spec, settings)
    if make:
        with suppress(OSError):
            # A server that cannot write there says so itself.
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return replace(spec, env={**spec.env, _MEMORY: str(place / "memory.jsonl")})


def keeps_own_place(spec: ServerSpec) -> bool:
    """Return whether a confined server must write in its own directory elsewhere."""
    return spec.sandbox is not False and recognised(spec.command, spec.args) == "memory"


def _own_place(spec: ServerSpec, settings: Settings) -> Path:
    return settings.state_dir / "memory" / spec.name


def _refuse_or_say(settings: Settings, why: list[str], say: Callable[[str], None]) -> None:
    if settings.sandbox_policy == "enforce":
        raise ConfigurationError(
            'sandboxPolicy is "enforce", but servers cannot be confined:\n'
            + "\n".join(why)
            + '\nor set "sandbox": false for those that you trust'
        )
    say(
        "warning: servers run unconfined, with all rights of this user "
        f"(sandboxPolicy is warn): {'; '.join(why)}"
    )


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
    own = _own_place(spec, settings)
    if spec.env.get(_MEMORY, "").startswith(f"{own}/"):
        places.append(own)
    return _real([one for one in places if os.path.isdir(one)])  # noqa: PTH112  raises nothing


def _may_change(rule: Rule, spec: ServerSpec) -> bool:
    if rule.effect == "deny" or rule.paths is None:
        return False
    applies = rule.servers is None or spec.annotations in rule.servers
    return applies and not rule.paths.roles.isdisjoint(CHANGES)


def _real(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(real(path)) for path in paths))
