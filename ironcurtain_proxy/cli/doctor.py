"""`ironcurtain-proxy doctor`: the parts that the configuration needs, checked on this machine."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from platform import python_version
from typing import Final, assert_never

from ironcurtain_proxy.cli.arguments import add_config, add_json
from ironcurtain_proxy.cli.check import counted_problems
from ironcurtain_proxy.cli.doctor_checks import (
    PROC_SYS,
    CheckResult,
    CheckState,
    bundle,
    clock,
    directories,
    hooks,
    kernel,
    packages,
    pins,
    programs,
    sandbox,
    store,
    timeline,
    user,
    without_sandbox,
)
from ironcurtain_proxy.cli.output import counted, encodable, say, say_json
from ironcurtain_proxy.config.auto_confirm import (
    ReviewerSpec,
    model_access,
    provider_of,
)
from ironcurtain_proxy.config.migration import COMMAND
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, gather_policy
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.settings import PROVIDER_KEYS, Settings, gather_settings
from ironcurtain_proxy.downstream.environment import child_environment
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import read_token
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.installed import Installed, NotInstalled, installation_of, look_up
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, probe
from ironcurtain_proxy.sandbox.profile import shown_limits
from ironcurtain_proxy.shell.launchers import container_image
from ironcurtain_proxy.wiring.confinement import machine_of
from ironcurtain_proxy.wiring.containment_report import containment_report
from ironcurtain_proxy.wiring.readiness import look_at_reviewers, look_at_servers
from ironcurtain_proxy.wiring.views import why_no_own_views

_REMEDIES: Final[Mapping[str, str]] = {
    "npx": "sudo apt-get install -y nodejs npm",
    "node": "sudo apt-get install -y nodejs",
    "uvx": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "uv": "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "pipx": "sudo apt-get install -y pipx",
    "docker": "sudo apt-get install -y docker.io",
    "podman": "sudo apt-get install -y podman",
}

_OTHER_REMEDY: Final = "install it, or give its full path as the server's command"


_MAKE_TOKEN: Final = "(umask 077; openssl rand -hex 32 > FILE)"  # noqa: S105  a command


DESCRIPTION: Final = """\
Check this machine, and name a remedy for each missing part. The checks: the programs of a sandbox,
the start of a sandbox, the configuration, the program of each server, the servers whose calls can
be contained, the directories that are written to, the space for points of rollback, the engine's
store, and the clock. No server is started, and nothing is changed.

A missing sandbox is a failure only where sandboxPolicy is "enforce" and a server is not
"sandbox": false; elsewhere it is a warning.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy doctor                        the configuration that `serve` uses
  ironcurtain-proxy doctor --config config.json
  ironcurtain-proxy doctor --json                 a list of {name, state, found, remedy}

exit status: 0 no failure; 1 a part that the configuration needs is missing
"""

_WORDS: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "32", "warn": "33", "fail": "1;31"}
_NARROWEST_NAME: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_config(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print all checks. Return 1 if something that the configuration needs is missing."""
    checks = list(_checks(options.config))
    if options.json:
        say_json([{k: encodable(v) for k, v in asdict(check).items()} for check in checks])
    else:
        say("\n".join(_text(checks)))
    return int(any(check.state == "fail" for check in checks))


def _checks(config: Path | None) -> Iterator[CheckResult]:
    report = Report()
    settings = gather_settings(os.environ, config, report)
    loaded = gather_policy(settings, report)
    # The sandbox and the directories have checks of their own.
    look_at_servers(settings, report)
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


def _process(name: str, spec: ReviewerSpec, environ: Mapping[str, str]) -> CheckResult:
    path = {**environ, **spec.env}.get("PATH", os.defpath)
    found = shutil.which(spec.command[0], path=path)
    if found is None:
        remedy = "install it, or give its full path as the reviewer's command"
        return CheckResult(name, "fail", f"{spec.command[0]} not found", remedy)
    # `/usr/bin/env python3 /srv/review.py`: a file that is not there ends the program at each
    # question. A relative word may mean anything.
    missing = [
        word for word in spec.command[1:] if word.startswith("/") and not Path(word).exists()
    ]
    if missing:
        remedy = "correct the reviewer's command, if it reads this file"
        return CheckResult(name, "warn", f"{found}, and {missing[0]} does not exist", remedy)
    return CheckResult(name, "ok", found)


def _session(name: str, spec: ReviewerSpec) -> CheckResult:
    if spec.token_file is None:
        return CheckResult(name, "fail", "no token file", _MAKE_TOKEN)
    try:
        read_token(spec.token_file)
    except ConfigurationError as error:
        return CheckResult(name, "fail", str(error), _MAKE_TOKEN)
    return CheckResult(name, "ok", str(spec.mailbox))


def _model(name: str, spec: ReviewerSpec, settings: Settings) -> CheckResult:
    provider, access = provider_of(spec.model_id), model_access(spec, settings)
    # A model on this machine may ask for none.
    if access.api_key or access.api_base:
        return CheckResult(name, "ok", spec.model_id)
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
        remedy = _REMEDIES.get(spec.command, _OTHER_REMEDY)
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
