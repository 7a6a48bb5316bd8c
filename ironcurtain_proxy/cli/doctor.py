"""`doctor`: the parts that the configuration needs, checked on this machine.

Each check looks at one thing and says what it found. None knows how that is shown.
"""

import argparse
import errno
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from platform import python_version
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import asdict

from ironcurtain_proxy.audit.recovery import nearest_existing, refuse_unusable
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.cli.check import counted_problems
from ironcurtain_proxy.cli.output import counted, encodable, say_answer
from ironcurtain_proxy.cli.pins import pins_warnings
from ironcurtain_proxy.config.auto_confirm import ReviewerForm
from ironcurtain_proxy.config.extras import lacks
from ironcurtain_proxy.config.overlay_settings import COMMAND
from ironcurtain_proxy.config.policy.managed import bundle_lines
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, gather_policy
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import PROVIDER_KEYS, Settings, gather_settings, provider_of
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.mailbox.answering import read_token
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.installed import Installed, NotInstalled, installation_of, look_up
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, missing_programs, probe, which
from ironcurtain_proxy.sandbox.profile import shown_limits
from ironcurtain_proxy.shell.launchers import container_image
from ironcurtain_proxy.wiring.confinement import ROOT_MEANS, machine_of
from ironcurtain_proxy.wiring.containment import TIMELINES
from ironcurtain_proxy.wiring.rehearsal import containment_report
from ironcurtain_proxy.wiring.serving import (
    is_hooked,
    look_at_reviewers,
    look_at_servers,
    refuse_mailbox,
)
from ironcurtain_proxy.wiring.views import why_no_own_views

# --- doctor checks


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


class CheckResult(Struct, frozen=True):
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
        yield CheckResult(name, "ok", which(program, environ) or "found")
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
        return  # said by `sessions`
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
        found = f"{place} cannot be written to ({error.strerror})"
        remedy = f"make {directory} a directory that you may write to, or configure another"
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return CheckResult(name, "fail", found, "make space on its disk" if is_full else remedy)
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


# --- doctor


_REMEDIES: Final[Mapping[str, str]] = {
    "npx": "sudo apt-get install -y nodejs npm",
    "node": "sudo apt-get install -y nodejs",
    "uvx": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "uv": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "pipx": "sudo apt-get install -y pipx",
    "docker": "sudo apt-get install -y docker.io",
    "podman": "sudo apt-get install -y podman",
}


def _to_find(command: str, whose: str) -> str:
    if "/" in command:
        return "correct its path"
    return f"install it, or give its full path as the {whose}'s command"


_MAKE_TOKEN: Final = "(umask 077; openssl rand -hex 32 > FILE)"  # noqa: S105  a command


_WORDS: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "32", "warn": "33", "fail": "1;31"}
_NARROWEST_NAME: Final = 12


def run(options: argparse.Namespace) -> int:
    """Print all checks. Return 1 if something that the configuration needs is missing."""
    checks = list(_checks(options.config))
    fields = [{k: encodable(v) for k, v in asdict(check).items()} for check in checks]
    say_answer(options, lambda: fields, lambda: _text(checks))
    return int(any(check.state == "fail" for check in checks))


def _checks(config: Path | None) -> Iterator[CheckResult]:
    report = Report()
    settings = gather_settings(os.environ, config, report)
    loaded = gather_policy(settings, report)
    # The sandbox and the directories have checks of their own.
    look_at_servers(settings, report, is_hooked=is_hooked(settings))
    look_at_reviewers(settings, loaded, os.environ, report)
    trouble = without_sandbox(settings)
    probed = probe(os.environ)
    yield CheckResult("python", "ok", python_version())
    yield from programs(os.environ, trouble)
    yield from kernel(PROC_SYS, trouble, sandbox_ran=isinstance(probed, Available))
    yield sandbox(probed, trouble)
    yield user(os.geteuid())
    yield from _configuration(settings, report, config)
    yield from packages(settings)
    yield from servers(settings, os.environ, trouble)
    yield from [CheckResult("limits", "ok", one) for one in shown_limits(settings.servers)]
    yield from containment(settings, loaded, probed)
    yield from reviewers(settings, os.environ)
    yield from directories(settings)
    yield from timeline(settings)
    yield from store(settings)
    yield from pins(settings)
    yield from bundle(loaded, utc_now())
    yield from hooks(settings)
    yield clock(settings, utc_now())


def _configuration(
    settings: Settings, report: Report, config: Path | None
) -> Iterator[CheckResult]:
    file = settings.config_file or config
    source = "no file" if file is None else str(file)
    if not report.problems:
        yield CheckResult("configuration", "ok", source)
        return
    errors = sum(problem.severity == "error" for problem in report.problems)
    found = f"{source}, {counted_problems(report.problems)}"
    # Where nothing is set up, there is nothing to check.
    is_fresh = file is None and not settings.servers
    remedy = "ironcurtain-proxy init" if is_fresh else "ironcurtain-proxy check"
    if config is not None and not is_fresh:
        remedy += f" --config {shlex.quote(str(config))}"
    yield CheckResult("configuration", "fail" if errors else "warn", found, remedy)
    for problem in report.problems:
        if COMMAND in problem.message:
            found, _, command = problem.message.partition("; to write that down, run ")
            yield CheckResult("older setting", "warn", found, command)


def _text(checks: Sequence[CheckResult]) -> Iterator[str]:
    width = max(_NARROWEST_NAME, *[len(visible(check.name)) for check in checks])
    colourful = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for check in checks:
        word = f"{_WORDS[check.state]:<4}"
        if colourful:
            word = f"\x1b[{_COLOURS[check.state]}m{word}\x1b[0m"
        told = f"{check.found}: {check.remedy}" if check.remedy else check.found
        yield f"{word}  {visible(check.name):<{width}}  {visible(told)}"
    yield _summary(checks)


def _summary(checks: Sequence[CheckResult]) -> str:
    """Return the last line, such as `15 checks: 1 failure, 2 warnings`."""
    failures = sum(check.state == "fail" for check in checks)
    warnings = sum(check.state == "warn" for check in checks)
    said = f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}"
    return f"{counted(len(checks), 'check')}: {said}"


def containment(
    settings: Settings, loaded: LoadedPolicy, probed: Available | Unavailable
) -> Iterator[CheckResult]:
    """Yield the servers whose calls can be contained; nothing where containment is off."""
    sandbox = probed if isinstance(probed, Available) else None
    found = containment_report(settings, loaded, os.environ, sandbox)
    if found is None:
        return
    remedies = [one.remedy for one in found.asked]
    remedies = ["", *remedies] if found.held else remedies
    for line, remedy in zip(found.lines(), remedies, strict=True):
        yield CheckResult("containment", "warn" if remedy else "ok", line, remedy)


def reviewers(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield one check for each reviewer of the engine that is a process, a session or a model."""
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return
    for spec in config.reviewers:
        name = f"reviewer {spec.name}"
        match spec.kind:
            case "human":
                continue
            case "process":
                yield _process(name, spec, environ)
            case "session":
                yield _session(name, spec)
            case "model":
                yield _model(name, spec, settings)
            case _:
                assert_never(spec.kind)


def _process(name: str, spec: ReviewerForm, environ: Mapping[str, str]) -> CheckResult:
    path = {**environ, **(spec.env or {})}.get("PATH", os.defpath)
    found = shutil.which(spec.command[0], path=path)
    if found is None:
        remedy = _to_find(spec.command[0], "reviewer")
        return CheckResult(name, "fail", f"{spec.command[0]} not found", remedy)
    # `/usr/bin/env python3 /srv/review.py`: a file that is not there ends the program at each
    # question. A relative word may mean anything.
    # `Path.exists` raises where we may not look.
    missing = [one for one in spec.command[1:] if one[:1] == "/" and not os.path.exists(one)]  # noqa: PTH110
    if missing:
        remedy = "correct the reviewer's command, if it reads this file"
        return CheckResult(name, "warn", f"{found}, and {missing[0]} does not exist", remedy)
    return CheckResult(name, "ok", found)


def _session(name: str, spec: ReviewerForm) -> CheckResult:
    if not spec.token_file:
        return CheckResult(name, "fail", "no token file", _MAKE_TOKEN)
    try:
        read_token(Path(spec.token_file))
    except ConfigurationError as error:
        return CheckResult(name, "fail", str(error), _MAKE_TOKEN)
    return CheckResult(name, "ok", str(spec.mailbox))


def _model(name: str, spec: ReviewerForm, settings: Settings) -> CheckResult:
    name_of_model = spec.model_id or ""
    provider, access = provider_of(name_of_model), settings.model_access(spec)
    # A model on this machine may ask for none.
    if access.api_key or access.api_base:
        return CheckResult(name, "ok", name_of_model)
    remedy = f"write {PROVIDER_KEYS.get(provider, 'API_KEY')!r} into the configuration"
    return CheckResult(name, "fail", f"no API key for {provider}", remedy)


_TRUST: Final = 'add "sandbox": false to its entry, if the container confines it well enough'


def servers(
    settings: Settings, environ: Mapping[str, str], trouble: CheckState
) -> Iterator[CheckResult]:
    """Yield one check for each server; `trouble` is the state of one that cannot be confined."""
    for spec in settings.servers:
        if spec.builtin is not None:
            yield _own_shell(f"server {spec.name}", settings, environ)
        else:
            yield _server(spec, settings, environ, trouble)


def _server(
    spec: ServerSpec, settings: Settings, environ: Mapping[str, str], trouble: CheckState
) -> CheckResult:
    name = f"server {spec.name}"
    if spec.remote is not None:
        return CheckResult(name, "ok", f"{spec.remote.host}, over the network")
    found = look_up(spec, machine_of(settings, environ))
    if isinstance(found, Installed):
        version = f", version {found.version}" if found.version else ""
        return CheckResult(name, "ok", f"{found.program} (in place of {spec.command}{version})")
    where = _find(spec, str(settings.workspace or ""), environ)
    if where is None:
        remedy = _REMEDIES.get(spec.command, _to_find(spec.command, "server"))
        return CheckResult(name, "fail", f"{spec.command} not found", remedy)
    image = container_image(spec.command, spec.args)
    if image is not None and spec.sandbox is None:
        what = f"starts a container of {image}, which no sandbox here can hold"
        return CheckResult(name, trouble, what, _TRUST)
    if isinstance(found, NotInstalled):
        why = f" ({found.why})" if found.why else ""
        what = f"{spec.command} fetches its package, and a sandbox has no network for that{why}"
        # A server with a configured sandbox is confined, also if it is not installed.
        state = trouble if spec.sandbox is None else "warn"
        return CheckResult(name, state, what, installation_of(spec))
    return CheckResult(name, "ok", where)


def _own_shell(name: str, settings: Settings, environ: Mapping[str, str]) -> CheckResult:
    """Check whether the commands of our own shell have views of their own."""
    why = why_no_own_views(settings, environ)
    if why is None:
        return CheckResult(name, "ok", "our own shell: each command has a view of its own")
    what = f"our own shell, whose commands have no views of their own here: {why}"
    return CheckResult(name, "warn", what)


def _find(spec: ServerSpec, workspace: str, environ: Mapping[str, str]) -> str | None:
    """Return the program that `serve` would run for a server, looked up from its directory."""
    path = child_environment(spec, environ).get("PATH", os.defpath)
    directory = Path(spec.cwd or workspace or Path.cwd())
    command = str(directory / spec.command) if "/" in spec.command else spec.command
    return shutil.which(command, path=path)
