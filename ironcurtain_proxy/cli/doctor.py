"""`ironcurtain-proxy doctor`: is everything here that the configuration needs?"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.cli.check import counted
from ironcurtain_proxy.cli.doctor_checks import (
    PROC_SYS,
    Check,
    clock,
    directories,
    kernel,
    packages,
    programs,
    running_python,
    sandbox,
    store,
    user,
    without_sandbox,
)
from ironcurtain_proxy.cli.doctor_reviewers import reviewers
from ironcurtain_proxy.cli.doctor_servers import servers
from ironcurtain_proxy.config.migration.migration import COMMAND
from ironcurtain_proxy.config.policy.policy_loading import gather_policy
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.settings import Settings, gather_settings, refuse_platform
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.requests import utc_now
from ironcurtain_proxy.sandbox.probe import Available, probe
from ironcurtain_proxy.wiring.readiness import look_at_reviewers, look_at_servers

DESCRIPTION: Final = """\
Look at this machine and say what is missing, each with the command that helps: the programs that
a sandbox is made of, a sandbox that really runs, the configuration, the program of each server,
the directories that are written to, the engine's store, and the clock. No server is started and
nothing is changed.

A missing sandbox is a failure only where sandboxPolicy is "enforce" and a server is not
"sandbox": false; elsewhere it is a warning.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy doctor                        for the configuration that serve would use
  ironcurtain-proxy doctor --config config.json
  ironcurtain-proxy doctor --json                 a list of {name, state, found, remedy}

exit status: 0 nothing worse than warnings, 1 something that the configuration needs is missing
"""

_WORDS: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "32", "warn": "33", "fail": "1;31"}
_NARROWEST_NAME: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration file")
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(options: argparse.Namespace) -> int:
    """Look. 1 if something that the configuration needs is missing.

    Raises:
        ConfigurationError: this platform is not supported.
    """
    refuse_platform(sys.platform)
    checks = list(_checks(options.config))
    lines = _json(checks) if options.json else _text(checks)
    for line in lines:
        # A path that is not UTF-8 must not stop the report.
        sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
    return int(any(check.state == "fail" for check in checks))


def _checks(config: Path | None) -> Iterator[Check]:
    report = Report()
    settings = gather_settings(os.environ, config, report)
    loaded = gather_policy(settings, report)
    # The sandbox and the places that are written to have lines of their own.
    look_at_servers(settings, report)
    look_at_reviewers(settings, loaded, os.environ, report)
    trouble = without_sandbox(settings)
    probed = probe(os.environ)
    yield running_python()
    yield from programs(os.environ, trouble)
    yield from kernel(PROC_SYS, trouble, sandbox_ran=isinstance(probed, Available))
    yield sandbox(probed, trouble)
    yield user(os.geteuid())
    yield from _configuration(settings, report, config)
    yield from packages(settings)
    yield from servers(settings, os.environ, trouble)
    yield from reviewers(settings, os.environ)
    yield from directories(settings)
    yield from store(settings)
    yield clock(settings, utc_now())


def _configuration(settings: Settings, report: Report, config: Path | None) -> Iterator[Check]:
    file = settings.config_file or config
    source = "no file" if file is None else str(file)
    if not report.problems:
        yield Check("configuration", "ok", source)
        return
    errors = sum(problem.severity == "error" for problem in report.problems)
    found = f"{source}, {counted(report.problems)}"
    remedy = "ironcurtain-proxy check"
    if config is not None:
        remedy += f" --config {shlex.quote(str(config))}"
    yield Check("configuration", "fail" if errors else "warn", found, remedy)
    for problem in report.problems:
        if COMMAND in problem.message:
            found, _, command = problem.message.partition("; to write that down, run ")
            yield Check("older setting", "warn", found, command)


def _text(checks: Sequence[Check]) -> Iterator[str]:
    width = max(_NARROWEST_NAME, *[len(visible(check.name)) for check in checks])
    colourful = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for check in checks:
        word = f"{_WORDS[check.state]:<4}"
        if colourful:
            word = f"\x1b[{_COLOURS[check.state]}m{word}\x1b[0m"
        told = f"{check.found}: {check.remedy}" if check.remedy else check.found
        yield f"{word}  {visible(check.name):<{width}}  {visible(told)}"


def _json(checks: Sequence[Check]) -> Iterator[str]:
    shown = [
        {key: value.encode("utf-8", "backslashreplace").decode() for key, value in fields.items()}
        for fields in map(asdict, checks)
    ]
    yield orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
