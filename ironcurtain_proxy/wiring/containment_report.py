"""The servers whose calls containment can settle, found without a start: for `check` and `doctor`.

The conditions are those of a call. Two of them stay open, because only a call shows them: its own
effect, and the limits of the running process.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.approval.containment import why_open
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.snapshots.timeline.opening import beyond_bounds
from ironcurtain_proxy.wiring.confinement import confinements, keeps_own_place
from ironcurtain_proxy.wiring.containment import limits_of
from ironcurtain_proxy.wiring.proxy import settled
from ironcurtain_proxy.wiring.rehearsal import configured_restrictions

_NO_WORKSPACE: Final = "there is no workspace"


class UncontainedServers(Struct, frozen=True, kw_only=True):
    """Servers whose calls containment never settles, whatever they do."""

    servers: tuple[str, ...]
    """The servers; empty: all of them."""
    why: str
    remedy: str
    """What helps, or empty where nothing is wrong."""


class ContainmentReport(Struct, frozen=True, kw_only=True):
    """The effect of containment on the servers of a configuration."""

    held: tuple[str, ...]
    """Servers whose calls run unasked where they can be taken back."""
    asked: tuple[UncontainedServers, ...]

    def lines(self) -> Iterator[str]:
        """Yield the effect in lines for people."""
        if self.held:
            yield f"calls of {', '.join(self.held)} that can be taken back run unasked"
        for one in self.asked:
            whose = f"calls of {', '.join(one.servers)}" if one.servers else "calls"
            yield f"{whose} that the policy asks about need a reviewer: {one.why}"

    def as_json(self) -> Json:
        """Return the effect as JSON."""
        return {
            "held": [*self.held],
            "asked": [
                {"servers": [*one.servers], "why": one.why, "remedy": one.remedy}
                for one in self.asked
            ],
        }


def containment_report(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], sandbox: Available | None
) -> ContainmentReport | None:
    """Return the effect of containment.

    It is None if it is off, or a server's sandbox is not possible.

    Args:
        settings: the operator's settings.
        loaded: the policy.
        environ: the proxy's environment.
        sandbox: this machine's.
    """
    if not settings.containment.undo:
        return None
    if settings.workspace is None:
        return _nothing(_NO_WORKSPACE, "write allowedDirectory into the configuration")
    limits = limits_of(settings)
    beyond = beyond_bounds(
        str(settings.workspace),
        max_files=limits.max_files,
        max_bytes=limits.max_bytes,
        caches=limits.caches,
        state=str(settings.state_dir),
    )
    if beyond is not None:
        return _nothing(
            f"they could not be taken back: {beyond}",
            "name what need not be held in containment.caches, or raise containment.max_files "
            "and containment.max_bytes",
        )
    specs = settled(settings, environ, make=False)
    try:
        confined = confinements(sandbox, specs, settings, loaded.policy, make=False)
    except ConfigurationError:
        return None  # said as an error
    held: list[str] = []
    asked: dict[tuple[str, str], list[str]] = {}
    for spec in settings.servers:
        # No sandbox of this machine holds a remote server, and some servers have to write
        # elsewhere.
        if spec.remote is not None or keeps_own_place(spec):
            continue
        restrictions = configured_restrictions(spec, confined.get(spec.name))
        why = why_open(restrictions, settings.workspace)
        if why is None:
            held.append(spec.name)
        else:
            asked.setdefault((why, _remedy(restrictions)), []).append(spec.name)
    return ContainmentReport(
        held=tuple(held),
        asked=tuple(
            [
                UncontainedServers(servers=tuple(names), why=why, remedy=remedy)
                for (why, remedy), names in asked.items()
            ]
        ),
    )


def _nothing(why: str, remedy: str) -> ContainmentReport:
    return ContainmentReport(
        held=(), asked=(UncontainedServers(servers=(), why=why, remedy=remedy),)
    )


def _remedy(restrictions: SandboxRestrictions | None) -> str:
    if restrictions is None:
        return 'install what `doctor` names, and remove "sandbox": false where its entry has it'
    if not restrictions.is_offline:
        return ""  # its hosts were opened on purpose, by `init` for servers that work there
    return "remove sandbox.filesystem.allowWrite, and a cwd outside the workspace, from its entry"
