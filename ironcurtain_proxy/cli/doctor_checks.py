"""The checks of `doctor` on this machine. Not a command itself.

Each function looks at one thing and says what it found. None knows how that is shown.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.audit.recovery import nearest_existing, refuse_unusable
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.cli.pins import pins_warnings
from ironcurtain_proxy.config.extras import lacks
from ironcurtain_proxy.config.policy.bundled import bundle_lines
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, missing_programs
from ironcurtain_proxy.wiring.confinement import ROOT_MEANS
from ironcurtain_proxy.wiring.containment import TIMELINES
from ironcurtain_proxy.wiring.readiness import refuse_mailbox

CheckState: TypeAlias = Literal["ok", "warn", "fail"]
"""`ok`: fine. `warn`: works, but not as well as it could. `fail`: a needed part is missing."""

PROC_SYS: Final = Path("/proc/sys")

_PROGRAMS: Final = (
    ("node", "node"),
    ("srt", "srt"),
    ("bubblewrap", "bwrap"),
    ("socat", "socat"),
    ("ripgrep", "rg"),
)
"""The programs that a sandbox needs, by the names of `sandbox.probe`."""

STORE_EXTRAS: Final = frozenset({"engine", "postgres"})
_MEBIBYTE: Final = 1 << 20
_OLDEST_YEAR: Final = 2025
_CLOCK_TOLERANCE: Final = 5.0
"""Seconds between the clock and the time of a file that was made just now."""
_SET_CLOCK: Final = "sudo timedatectl set-ntp true"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    name: str
    state: CheckState
    found: str
    remedy: str = ""
    """The command that mends the failure, or empty if nothing has to be done."""


def without_sandbox(settings: Settings) -> CheckState:
    """Return the state of a missing sandbox: a failure only where a server would be refused."""
    confined = any(spec.sandbox is not False for spec in settings.servers)
    return "fail" if settings.sandbox_policy == "enforce" and confined else "warn"


def programs(environ: Mapping[str, str], trouble: CheckState) -> Iterator[CheckResult]:
    """Yield the programs that a sandbox needs; `trouble` is the state of a missing one."""
    missing = {one.name: one for one in missing_programs(environ)}
    for name, program in _PROGRAMS:
        if (one := missing.pop(name, None)) is not None:
            yield CheckResult(name, trouble, one.why, one.remedy)
            continue
        where = shutil.which(program, path=environ.get("PATH", os.defpath))
        yield CheckResult(name, "ok", where or "found")
    for one in missing.values():
        yield CheckResult(one.name, trouble, one.why, one.remedy)


def kernel(proc_sys: Path, trouble: CheckState, *, sandbox_ran: bool) -> Iterator[CheckResult]:
    """Yield the kernel's settings for user namespaces. A sandbox that ran overrules them.

    Where such a file does not exist, as on other systems, the kernel has no such restriction.
    """
    limit = _read(proc_sys / "user" / "max_user_namespaces")
    unprivileged = _read(proc_sys / "kernel" / "unprivileged_userns_clone")
    remedy = ""
    if limit == "0":
        remedy = "sudo sysctl -w user.max_user_namespaces=15000"
    elif unprivileged == "0":
        remedy = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    yield _restriction("user namespaces", "switched off", remedy, trouble, ran=sandbox_ran)

    restricted = _read(proc_sys / "kernel" / "apparmor_restrict_unprivileged_userns") == "1"
    remedy = (
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
        "(or a profile in /etc/apparmor.d that allows bwrap userns)"
    )
    yield _restriction(
        "apparmor",
        "forbids user namespaces to programs without a profile",
        remedy if restricted else "",
        trouble,
        ran=sandbox_ran,
    )


def _restriction(
    name: str, what: str, remedy: str, trouble: CheckState, *, ran: bool
) -> CheckResult:
    if not remedy:
        return CheckResult(name, "ok", "not restricted")
    if ran:
        return CheckResult(name, "ok", f"{what}, but a sandbox runs")
    return CheckResult(name, trouble, what, remedy)


def user(number: int) -> CheckResult:
    """Check whether an ordinary user runs the sandboxes, not root."""
    if number != 0:
        return CheckResult("user", "ok", "not root")
    return CheckResult("user", "warn", f"root: {ROOT_MEANS}")


def sandbox(probed: Available | Unavailable, trouble: CheckState) -> CheckResult:
    """Check whether a sandbox could be started."""
    if isinstance(probed, Available):
        return CheckResult("sandbox", "ok", "a process ran confined")
    programs_missing = {name for name, _ in _PROGRAMS}
    for one in probed.missing:
        if one.name not in programs_missing:
            return CheckResult("sandbox", trouble, one.why, one.remedy)
    names = ", ".join(one.name for one in probed.missing)
    return CheckResult("sandbox", trouble, "not tried", f"first install {names}")


def directories(settings: Settings) -> Iterator[CheckResult]:
    """Yield the directories that the proxy writes to."""
    yield _writable("state directory", settings.state_dir)
    log = settings.audit.path
    usable = _usable("audit log", log, refuse_unusable)
    yield _writable("audit log", log.parent) if usable.state == "ok" else usable
    # Without `escalationDir`, each session makes a new directory beside the others.
    for mailbox in settings.mailboxes:
        usable = _usable("mailbox", mailbox, refuse_mailbox)
        is_own = mailbox == settings.mailbox_dir and settings.escalation_dir is None
        yield (
            _writable("mailbox", mailbox.parent if is_own else mailbox)
            if (usable.state == "ok")
            else usable
        )


def timeline(settings: Settings) -> Iterator[CheckResult]:
    """Check that the points of the timeline have the space that they may take, where it is on."""
    if not settings.containment.undo:
        return
    place = nearest_existing(settings.state_dir / TIMELINES)
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return  # said by `directories`
    most = settings.timeline.max_bytes
    found = f"{free / _MEBIBYTE:,.0f} MiB free for points of rollback in {place}"
    if free >= most:
        yield CheckResult("timeline", "ok", found)
        return
    yield CheckResult(
        "timeline",
        "warn",
        f"{found}; they may take {most / _MEBIBYTE:,.0f} MiB (containment.max_bytes). On a full "
        "disk you are asked about calls that containment would settle",
        "make space, or set containment.max_bytes lower",
    )


def _usable(name: str, path: Path, refuse: Callable[[Path], None]) -> CheckResult:
    """Check whether `serve` would accept a path."""
    try:
        refuse(path)
    except ConfigurationError as error:
        what, _, remedy = str(error).partition("; ")
        return CheckResult(name, "fail", what, remedy or f"configure another place than {path}")
    return CheckResult(name, "ok", str(path))


def _writable(name: str, directory: Path) -> CheckResult:
    place = nearest_existing(directory)
    try:
        _time_of_new_file(place)
    except OSError as error:
        return CheckResult(
            name,
            "fail",
            f"{place} cannot be written to ({error.strerror})",
            f"make {directory} a directory that you may write to, or configure another",
        )
    return CheckResult(
        name, "ok", str(directory) if place == directory else f"{directory} (to be made)"
    )


def clock(settings: Settings, now: datetime) -> CheckResult:
    """Check whether the clock is right: its time is recorded and ends grants."""
    if now.year < _OLDEST_YEAR:
        return CheckResult("clock", "fail", f"says {now:%Y-%m-%d}", _SET_CLOCK)
    try:
        written = _time_of_new_file(nearest_existing(settings.state_dir))
    except OSError:
        return CheckResult(
            "clock",
            "warn",
            "not compared: no file can be written",
            "see the line of state directory",
        )
    return clock_against_file(now, written)


def clock_against_file(now: datetime, written: float) -> CheckResult:
    """Compare the clock with the time of a new file, in seconds of the epoch."""
    apart = abs(now.timestamp() - written)
    if apart > _CLOCK_TOLERANCE:
        found = f"{apart:.0f} s from the time the file system gives to a new file"
        return CheckResult("clock", "warn", found, _SET_CLOCK)
    return CheckResult("clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _time_of_new_file(directory: Path) -> float:
    """Return the time of a new temporary file, in seconds of the epoch."""
    with tempfile.TemporaryFile(dir=directory, prefix=".doctor-") as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def packages(settings: Settings) -> Iterator[CheckResult]:
    """Yield the libraries that settings need and that are not installed."""
    for lack in lacks(settings):
        yield CheckResult("packages", "fail" if lack.stops else "warn", lack.what, lack.remedy)


def bundle(loaded: LoadedPolicy, now: datetime) -> Iterator[CheckResult]:
    """Check the fleet's bundle: its age, and why the last update failed."""
    if loaded.bundle is None:
        return
    about, *troubles = bundle_lines(loaded.bundle, now)
    yield CheckResult("bundle", "ok", about)
    for trouble in troubles:
        remedy = "sudo ironcurtain-proxy bundle update"
        yield CheckResult("bundle", "warn", trouble, "" if loaded.bundle.stopped else remedy)


def pins(settings: Settings) -> Iterator[CheckResult]:
    """Check for changed descriptions of servers that nobody has accepted yet."""
    for text in pins_warnings(settings.state_dir):
        found, _, remedy = text.rpartition(": ")
        yield CheckResult("pins", "warn", found, remedy)


def store(settings: Settings) -> Iterator[CheckResult]:
    """Return whether the engine's store can be used, where the engine is on. Creates no store."""
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return
    if any(lack.extra in STORE_EXTRAS for lack in lacks(settings)):
        return  # said by `packages`
    # SQLAlchemy is slow to import.
    from ironcurtain_proxy.auto_confirm.store.tables import inspect_store  # noqa: PLC0415

    try:
        is_there = inspect_store(config.store_url, settings.state_dir)
    except StoreError as error:
        remedy = "put a backup in its place, or move it away: the next session makes an empty one"
        yield CheckResult("store", "fail", str(error), remedy)
    else:
        yield CheckResult("store", "ok", "can be read" if is_there else "to be made")


def hooks(settings: Settings) -> Iterator[CheckResult]:
    """Check the hooks of each client that has ours."""
    # Joins all folders.
    from ironcurtain_proxy.hooks.health import health_of  # noqa: PLC0415

    for client in DIALECTS:
        try:
            found = health_of(client, Path(settings.home), settings.state_dir, Path.cwd())
        except ConfigurationError as error:
            yield CheckResult(f"hooks of {client}", "warn", str(error))
            continue
        if found.state != "absent":
            yield CheckResult(f"hooks of {client}", "ok", str(found))
            remedy = "ironcurtain-proxy hooks status"
            for alarm in found.alarms:
                yield CheckResult(f"hooks of {client}", "fail", alarm, remedy)
