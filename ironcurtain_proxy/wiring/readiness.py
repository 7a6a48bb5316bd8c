"""The obstacles to the start of `serve`, found without starting or leaving anything.

`serve` meets the same obstacles one after the other, in the parts that this file asks; `check`,
`status` and `doctor` want all of them at once. A test holds the two against each other.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.recovery import nearest_existing, refuse_unusable, try_writing
from ironcurtain_proxy.config.extras import lacks
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.servers.servers_file import SERVERS_NAME
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process.clocks import SystemClock
from ironcurtain_proxy.private_directory import MailboxDirectory
from ironcurtain_proxy.wiring.confinement import confinements, find_sandbox
from ironcurtain_proxy.wiring.proxy import settled
from ironcurtain_proxy.wiring.remote import refuse_closed_hosts, unused_proxies
from ironcurtain_proxy.wiring.reviewers import assemble_reviewers

NO_SERVERS: Final = (
    "no server is configured: run `ironcurtain-proxy init`, or write one with a command or a url "
    "into this file, into mcpServers of the configuration file, or into MCP_SERVERS_CONFIG"
)
"""The message that nothing is served."""

NO_WORKSPACE: Final = (
    "no workspace is set: run `ironcurtain-proxy init`, or write allowedDirectory into this file "
    "(a client that sets ALLOWED_DIRECTORY sets it for its own proxy alone)"
)
"""The message that every file is asked about."""


def look_at_the_start(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    """Note the obstacles to the start of `serve`, and warnings for its operator.

    Args:
        settings: what could be read of the operator's words.
        loaded: what could be read of the policy.
        environ: ours.
        report: holds what was wrong with these words already. Where that are errors, what may only
            follow from them is not said.
    """
    look_at_servers(settings, report)
    if not report.has_errors:
        _look_at_sandboxes(settings, loaded, environ, report)
        _try(partial(refuse_closed_hosts, settings, loaded.policy), report)
        for warning in unused_proxies(settings, environ):
            report.warning(servers_source(settings), (), warning)
    look_at_places(settings, report)
    look_at_reviewers(settings, loaded, environ, report)


def look_at_servers(settings: Settings, report: Report) -> None:
    """Note that there is nothing to serve, or no workspace."""
    if report.has_errors:
        return
    if not settings.servers:
        report.error(servers_source(settings), (), NO_SERVERS)
    if settings.workspace is None:
        source = settings.config_file or settings.state_dir / CONFIG_NAME
        report.warning(source, (), NO_WORKSPACE)
    elif any(spec.sandbox is not False for spec in settings.servers):
        outside = outer_repository(settings.workspace, settings.home)
        if outside is not None:
            report.warning("workspace", (), outside)


def servers_source(settings: Settings) -> str:
    """The file in which the servers are, or should be, configured."""
    return str(settings.servers_file or settings.config_file or settings.state_dir / SERVERS_NAME)


def look_at_places(settings: Settings, report: Report) -> None:
    """Note places that cannot be written to."""
    _try(partial(refuse_unusable, settings.audit.path), report)
    _try(partial(refuse_unmakeable, settings.session_dir), report)
    for mailbox in settings.mailboxes:
        _try(partial(refuse_mailbox, mailbox), report)


def look_at_reviewers(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    """Note reviewers that cannot be joined, and their missing libraries."""
    for lack in lacks(settings):
        (report.error if lack.stops else report.warning)("configuration", (), str(lack))
    if not report.has_errors:
        _try(partial(_assemble, settings, loaded, environ), report)


def refuse_mailbox(directory: Path) -> None:
    """Refuse a mailbox that could not be used.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        MailboxDirectory.open(directory, create=False).close()
    except FileNotFoundError:
        refuse_unmakeable(directory)


def refuse_unmakeable(directory: Path) -> None:
    """Refuse a directory that is not there and could not be made.

    Raises:
        ConfigurationError: it could not.
    """
    there = nearest_existing(directory)
    if not there.is_dir():
        raise ConfigurationError(f"{directory} cannot be made: {there} is not a directory")
    try:
        try_writing(there)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{directory} cannot be made: {there}: {why}") from None


def _assemble(settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str]) -> None:
    approvals = Approvals(GrantBook(), BudgetBook())
    assemble_reviewers(settings, approvals, SystemClock(), environ, loaded)


def _look_at_sandboxes(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    said: list[str] = []
    try:
        sandbox = find_sandbox(settings, environ, said.append)
        specs = settled(settings, environ, make=False)
        confinements(sandbox, specs, settings, loaded.policy, make=False)
    except ConfigurationError as error:
        report.error("sandbox", (), "; ".join(str(error).replace(":\n", ": ").splitlines()))
    for text in said:
        report.warning("sandbox", (), text.removeprefix("warning: "))


def _try(attempt: Callable[[], object], report: Report) -> None:
    try:
        attempt()
    except ConfigurationError as error:
        report.error("configuration", (), str(error))


_MOST: Final = 4096
"""The most bytes of a `.git` file; a longer file is something else."""
_PREFIX: Final = "gitdir:"


def outer_repository(workspace: RealPath, home: Path) -> str | None:
    """The limits of git in a sandbox of this workspace, with the remedy; None: git can do all.

    A worktree keeps its index and branches in the repository that it was made of, and a directory
    of a larger repository keeps them in the directory above. A sandbox writes in the workspace
    alone, and the timeline holds nothing else: git can read there, and cannot commit.
    """
    place = Path(str(workspace))
    data = _data(place)
    if data is None or RealPath.from_text(str(data)).is_within(workspace):
        return None
    around = data.parent if _is_above(data.parent, place) else None
    if around is not None:
        what, then = f"lies in a larger one, {around}", f"make {around} the workspace"
    else:
        what = f"keeps its data outside, in {data}"
        both = _above_both(place, data)
        joined = f"make {both} the workspace, which holds both" if both not in (home, None) else ""
        apart = "make the worktree inside the repository that it belongs to, and that the workspace"
        then = joined or apart
    return (
        f"the git repository of the workspace {what}: in a sandbox git reads it, and cannot add, "
        f"commit or fetch; {then} (allowedDirectory)"
    )


def _data(place: Path) -> Path | None:
    """The directory with branches and objects of the repository that a directory is in."""
    for directory in (place, *place.parents):
        found = directory / ".git"
        try:
            if found.is_dir():
                return found.resolve()
            if found.is_file() and found.stat().st_size <= _MOST:
                text = found.read_text(encoding="utf-8", errors="surrogateescape").strip()
                if text.startswith(_PREFIX):
                    return _common((directory / text.removeprefix(_PREFIX).strip()).resolve())
        except (OSError, RuntimeError, ValueError):
            return None
    return None


def _common(data: Path) -> Path:
    """The directory that all worktrees of a repository share."""
    pointer = data / "commondir"
    if not pointer.is_file() or pointer.stat().st_size > _MOST:
        return data
    text = pointer.read_text(encoding="utf-8", errors="surrogateescape").strip()
    return (data / text).resolve()


def _above_both(one: Path, other: Path) -> Path | None:
    """The nearest directory around both; None: the root."""
    above = next(path for path in one.parents if _is_above(path, other))
    return None if above == above.parent else above


def _is_above(path: Path, below: Path) -> bool:
    return below.is_relative_to(path)
