"""`metrics`, `report`, `patterns`, `window`: what the auto-confirm engine did, and may do.

No call becomes a pattern by itself: `patterns propose` shows what reviewers' approvals suggest, and
`patterns promote` is a person's decision.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import orjson
from msgspec.structs import asdict

from ironcurtain_proxy.audit.calls import recorded_calls
from ironcurtain_proxy.audit.display import Selection, printable
from ironcurtain_proxy.auto_confirm.session_files import Windows
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.output import complain, counted, say, say_answer
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.extras import require, store_extra
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.private_files import write_whole
from ironcurtain_proxy.report.fleet import calls_part, count_calls
from ironcurtain_proxy.report.plots import page

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_confirm.store.metrics import Metrics
    from ironcurtain_proxy.auto_confirm.store.rows import PatternProposal, PatternRow
    from ironcurtain_proxy.auto_confirm.store.store import Store


# --- the store, opened for a command --------------------------------------------------------------
# The parts shared by `metrics` and `patterns`.
def opened_store(options: argparse.Namespace) -> "Store":
    """Return the store of the configuration, which must exist.

    Raises:
        ConfigurationError: the settings cannot be used.
        StoreError: there is no store, or it cannot be used.
    """
    return store_of(load_settings(os.environ.copy(), options.config))


def store_of(settings: Settings) -> "Store":
    """Return the store that these settings name, which must exist.

    Raises:
        ConfigurationError: its library is not installed.
        StoreError: the store does not exist, or cannot be used.
    """
    config = settings.auto_confirm
    url = None if config is None else config.store_url
    require(store_extra(url), "the store of the auto-confirm engine")
    # SQLAlchemy is slow to import; the help of other commands does not need it.
    from ironcurtain_proxy.auto_confirm.store.store import open_store  # noqa: PLC0415

    return open_store(url, settings.state_dir, SystemClock(), create=False)


def metrics_of(
    settings: Settings, store: "Store", now: datetime, since: datetime | None
) -> "Metrics":
    """Return the metrics of a store, with what sessions of this machine could not write.

    Raises:
        StoreError: it cannot be read.
    """
    from ironcurtain_proxy.auto_confirm.session_files import unwritten_questions  # noqa: PLC0415  slow
    from ironcurtain_proxy.auto_confirm.store.metrics import compute  # noqa: PLC0415  slow

    config = settings.auto_confirm
    first = since
    if config is not None and config.keep_days:
        # The rows of older questions may have been removed.
        kept = now - timedelta(days=config.keep_days)
        first = kept if since is None else max(since, kept)
    return compute(store, now, since, [*unwritten_questions(settings.state_dir, first)])


def begin_of(options: argparse.Namespace, now: datetime) -> datetime | None:
    """Return the time in `--since`, or None for the beginning."""
    span: timedelta | None = options.since
    return None if span is None else now - span


def run_metrics(options: argparse.Namespace) -> int:
    """Print the metrics. 0 even if a target is missed."""
    require("engine", "metrics")
    from ironcurtain_proxy.auto_confirm.store.metrics import (  # noqa: PLC0415  slow
        as_json,
        as_lines,
        as_prometheus,
    )

    now = SystemClock().now()
    settings = load_settings(os.environ.copy(), options.config)
    with store_of(settings) as store:
        metrics = metrics_of(settings, store, now, begin_of(options, now))
    if options.prometheus:
        sys.stdout.write(as_prometheus(metrics))
    else:
        say_answer(options, lambda: as_json(metrics), lambda: as_lines(metrics))
    return 0


# --- report


def run_report(options: argparse.Namespace) -> int:
    """Write the page, or count the records of a fleet."""
    if options.fleet is not None:
        return _fleet(options)
    now = SystemClock().now()
    since = begin_of(options, now)
    try:
        calls = recorded_calls(logs_to_read(options.log).members(), Selection(since=since))
        day = count_calls(call.entry for call in calls)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{error.filename}: no call was recorded yet") from error
    # Arguments and reasons are not for everyone: only the user can read the file.
    part = calls_part(day, now, local_time)
    write_whole(options.output, page(part, now).encode("utf-8", "backslashreplace"))
    wrote = orjson.dumps({"wrote": str(options.output)}).decode()
    say(wrote if options.json else f"wrote {options.output}")
    return 0


def _fleet(options: argparse.Namespace) -> int:
    # Only where it is asked for.
    from ironcurtain_proxy.report.fleet import (  # noqa: PLC0415
        count_fleet,
        fleet_fields,
        fleet_lines,
    )

    costs = count_fleet(options.fleet)
    say_answer(options, lambda: fleet_fields(costs), lambda: map(printable, fleet_lines(costs)))
    return 0


# --- patterns


def run_patterns(options: argparse.Namespace) -> int:
    """Run one action. Return 1 if there is no pattern of that name."""
    with opened_store(options) as store:
        match options.action:
            case "propose":
                found = store.propose_patterns(options.evidence)
                say_answer(options, lambda: [*map(asdict, found)], lambda: _proposed(found))
                return 0
            case "list":
                known = store.patterns()
                say_answer(options, lambda: [*map(asdict, known)], lambda: _listed(known))
                return 0
            case "promote":
                return _promote(store, options)
            case _:
                if not store.disable_pattern(options.name):
                    complain(
                        f"there is no pattern {options.name!r}: `patterns list` shows the names"
                    )
                    return 1
                return _done(options, "disabled")


def _proposed(proposals: Sequence["PatternProposal"]) -> Iterator[str]:
    if not proposals:
        yield "nothing to propose"
    for one in proposals:
        yield (
            f"{visible(one.name)}  {one.risk_level}  {visible(one.scope_regex)}  "
            f"({one.approved} approved, {one.rejected} refused, in "
            f"{counted(one.sessions, 'session')})"
        )


def _listed(patterns: Sequence["PatternRow"]) -> Iterator[str]:
    if not patterns:
        yield "there are no patterns"
    for one in patterns:
        scope = "any scope" if one.scope_regex is None else visible(one.scope_regex)
        state = "approves" if one.auto_approve else "disabled"
        yield (
            f"{visible(one.name)}  {state}  {one.risk_level or 'any risk'}  {scope}  "
            f"(used {one.usage_count} times, {one.success_rate:.0%} succeeded; "
            f"by {visible(one.created_by or 'unknown')})"
        )


def _promote(store: "Store", options: argparse.Namespace) -> int:
    known = {one.name for one in store.patterns()}
    if options.name in known:
        if store.enable_pattern(options.name):
            return _done(options, "promoted")
        complain(f"{options.name!r} is of high risk: such a pattern never approves")
        return 1
    for proposal in store.propose_patterns(options.evidence):
        if proposal.name == options.name:
            store.promote(proposal, getpass.getuser())
            return _done(options, "promoted")
    complain(
        f"there is no proposal or pattern {options.name!r}: `patterns propose` and `patterns list` "
        "show the names"
    )
    return 1


def _done(options: argparse.Namespace, what: str) -> int:
    fields = {"name": options.name, "state": what}
    say_answer(options, lambda: fields, lambda: [f"{what} {visible(options.name)}"])
    return 0


# --- window


def run_window(options: argparse.Namespace) -> int:
    """Open or close a window.

    Raises:
        IronCurtainError: it could not be written.
    """
    windows = Windows(state_directory() / "windows")
    name = options.name
    try:
        if options.action == "open":
            windows.open(name, utc_now() + options.span)
        elif options.action == "close":
            windows.close(name)
    except OSError as error:
        raise IronCurtainError(f"{windows.directory}: {error.strerror}") from None
    ends = windows.ends(name)
    if ends is not None and utc_now() < ends:
        say(f"{name}: open until {ends.isoformat(timespec='seconds')}")
        config = load_settings(os.environ.copy(), None).auto_confirm
        if config is None or not config.engine.enabled:
            say("the auto-confirm engine is off, so that this changes nothing until "
                "auto_confirm.enabled switches it on")  # fmt: skip
    else:
        say(f"{name}: closed")
    return 0
