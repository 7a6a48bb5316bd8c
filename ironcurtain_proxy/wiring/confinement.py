"""Which sandbox each server runs in: the operator's words, the policy and this machine, joined."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import ironcurtain_proxy
from ironcurtain_proxy.administration.operator_paths import real
from ironcurtain_proxy.administration.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.launchers import installation
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, probe
from ironcurtain_proxy.sandbox.probe_cache import recall, remember
from ironcurtain_proxy.sandbox.profile import Surroundings, profile_of
from ironcurtain_proxy.sandbox.settings import Settings as SrtSettings

_KEYS: Final = (".ssh", ".gnupg", ".aws")
_CHANGES: Final[frozenset[ArgumentRole]] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)


def find_sandbox(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> Available | None:
    """The sandbox of this machine; None if no server wants one, or there is none.

    Args:
        settings: what the operator said.
        environ: where programs are found.
        say: told once, in a line, of servers that run unconfined.

    Raises:
        ConfigurationError: there has to be one and is not.
    """
    bare = [spec for spec in settings.servers if spec.sandbox is None and _installs(spec)]
    if bare:
        _refuse_or_say(settings, _about_launchers(bare), say)
    confined = [spec.name for spec in settings.servers if is_confined(spec)]
    if not confined:
        return None
    cache = settings.state_dir / "sandbox.json"
    found = recall(cache, environ) or probe(environ)
    if isinstance(found, Available):
        remember(cache, environ, found)
        return found
    _refuse_or_say(settings, [f"{', '.join(confined)}: {'; '.join(_remedies(found))}"], say)
    return None


def is_confined(spec: ServerSpec) -> bool:
    """Whether a server is meant to run in a sandbox, where there is one.

    One that fetches its own program needs what a sandbox denies; it is confined only if the
    operator wrote its sandbox down.
    """
    return spec.sandbox is not False and (spec.sandbox is not None or not _installs(spec))


def _installs(spec: ServerSpec) -> str | None:
    return installation(spec.command, spec.args)


def _about_launchers(specs: Sequence[ServerSpec]) -> list[str]:
    return [
        f"{spec.name}: {spec.command} fetches its package, which no sandbox lets it: run "
        f"{_installs(spec)}, and make the program it installs the server's command"
        for spec in specs
    ]


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
    sandbox: Available | None, specs: Sequence[ServerSpec], settings: Settings, policy: Policy
) -> Mapping[str, Confinement]:
    """The confinement of each server that has one.

    Args:
        sandbox: this machine's; None: nobody is confined.
        specs: with their working directories, which exist.
        settings: what the operator said.
        policy: what may be allowed, and what is closed.

    Raises:
        ConfigurationError: a server's sandbox cannot be as it is configured.
    """
    if sandbox is None:
        return {}
    with suppress(OSError):
        # What does not exist cannot be closed, and a reader of requests knows what is asked.
        settings.mailbox_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = _real([settings.home / key for key in _KEYS])
    writable = {spec.name: _writable(spec, policy) for spec in specs}
    open_ = [*_real([settings.home]), *[path for paths in writable.values() for path in paths]]
    own = [path for path in _own(settings, policy, open_) if path not in keys]
    confined: dict[str, Confinement] = {}
    for spec in specs:
        if not is_confined(spec):
            continue
        around = Surroundings(
            home=str(settings.home),
            own=tuple(own),
            code=_real(_code()),
            keys=keys,
            real=lambda text: str(real(Path(text))),
            workspace=None if settings.workspace is None else str(settings.workspace),
            writable=writable[spec.name],
        )
        profile = profile_of(spec, around)
        try:
            SrtSettings.of(profile)
        except ConfigurationError as error:
            raise ConfigurationError(f'server "{spec.name}": {error}') from None
        confined[spec.name] = Confinement(sandbox.command, profile)
    return confined


def _own(settings: Settings, policy: Policy, opened: Sequence[str]) -> tuple[str, ...]:
    """What is ours. A log's whole directory, unless somebody else's is in it."""
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


def _code() -> Iterable[Path]:
    yield Path(ironcurtain_proxy.__file__).parent
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix)


def _writable(spec: ServerSpec, policy: Policy) -> tuple[str, ...]:
    """The directories that rules may let a server change. What does not exist cannot be opened."""
    places = [
        Path(str(rule.paths.within))
        for rule in policy.rules
        if rule.paths is not None and _may_change(rule, spec)
    ]
    return _real([place for place in places if place.is_dir()])


def _may_change(rule: Rule, spec: ServerSpec) -> bool:
    if rule.effect == "deny" or rule.paths is None:
        return False
    applies = rule.servers is None or spec.annotations in rule.servers
    return applies and not rule.paths.roles.isdisjoint(_CHANGES)


def _real(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(real(path)) for path in paths))


def _remedies(found: Unavailable) -> list[str]:
    return [f"{missing.name}: {missing.why} ({missing.remedy})" for missing in found.missing]
