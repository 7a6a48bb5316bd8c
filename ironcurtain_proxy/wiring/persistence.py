"""The grants that outlive their session, joined from the settings."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from ironcurtain_proxy.config.policy.difference import Basis
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.branches import repository_of
from ironcurtain_proxy.facts.fingerprint import server_digest
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.ports import Clock

if TYPE_CHECKING:
    from ironcurtain_proxy.grants.kept import PersistedGrants


def grant_ending(settings: Settings) -> str:
    """The end of a remembered approval in words, where no `ttlSeconds` ends it sooner."""
    said = settings.overlay.grants
    lasts = said.persist and said.scope != "session"
    if not lasts or (said.scope == "project" and settings.workspace is None):
        return "until this session ends"
    days = f"for {said.expires_days} day{'' if said.expires_days == 1 else 's'}"
    return f"{days} in this project" if said.scope == "project" else days


def patience(settings: Settings) -> timedelta:
    """The time for reviewers: with the engine, for a target and then for its fallback."""
    config = settings.auto_confirm
    if config is not None and config.engine.enabled:
        return timedelta(minutes=2 * config.engine.escalation_timeout_minutes)
    return timedelta(seconds=settings.escalation_timeout_seconds)


def grant_ttl(settings: Settings) -> timedelta | None:
    """The time for which a remembered approval holds; None: as long as the session."""
    seconds = settings.overlay.grants.ttl_seconds
    return timedelta(seconds=seconds) if seconds else None


def basis_in(settings: Settings, basis: Basis) -> Callable[[str, str], str]:
    """Gives a digest of all that a policy says of a tool, by the operator's name of its server."""
    names = {spec.name: spec.annotations for spec in settings.servers}
    return lambda server, tool: basis.digest(names.get(server, ""), tool, settings.workspace)


def persisted_grants(
    settings: Settings, loaded: LoadedPolicy, clock: Clock
) -> "tuple[PersistedGrants | None, str]":
    """The keeper of grants, or None; and a notice for the operator, if there is one.

    Args:
        settings: the operator's settings.
        loaded: the policy that is enforced.
        clock: the time.
    """
    said = settings.overlay.grants
    if not said.persist:
        return None, ""
    if said.scope == "session":
        return None, (
            "grants.persist is enabled, but its scope is session: nothing is kept; "
            "set grants.persist.scope to project or user"
        )
    if said.scope == "project" and settings.workspace is None:
        return None, "grants.persist has the scope project, but no workspace: nothing is kept"
    # Off unless switched on: most sessions start without it.
    from ironcurtain_proxy.grants.file import KEPT_NAME, GrantsFile  # noqa: PLC0415
    from ironcurtain_proxy.grants.kept import Circumstances, PersistedGrants  # noqa: PLC0415

    workspace = None if settings.workspace is None else str(settings.workspace)
    repository = None if workspace is None else repository_of(workspace)
    here = Circumstances(
        scope=said.scope,
        workspace=settings.workspace,
        repository=None if repository is None else RealPath.from_text(repository),
        policy_version=loaded.version,
        basis=basis_in(settings, Basis(loaded.policy, loaded.annotations)),
        servers={spec.name: server_digest(spec, workspace) for spec in settings.servers},
        lifetime=timedelta(days=said.expires_days),
    )
    return PersistedGrants(GrantsFile(settings.state_dir / KEPT_NAME), here, clock), ""
