"""`audit verify`, `stats`, `ship` and `root`: whole logs, and what other machines know of them."""

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from ironcurtain_proxy.audit.display import Statistics, printable
from ironcurtain_proxy.audit.files import parsed, read_lines, records_of
from ironcurtain_proxy.audit.known_logs import Member, forget_log, missing_logs, noted_lines
from ironcurtain_proxy.audit.shipping import Shipped, Shipper, ShippingError
from ironcurtain_proxy.audit.verify import (
    HEADS_SUFFIX,
    ROOTS_NAME,
    LogHead,
    LogVerdict,
    SignedRoot,
    check_log,
    check_roots,
    counts_of,
    hours_of,
    hours_to_sign,
    hours_to_sign_again,
    publish,
    read_heads,
    read_roots,
    root_of,
    verify,
)
from ironcurtain_proxy.cli.output import complain, counted, picked, say, say_answer, say_json
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import object_of, text_of
from ironcurtain_proxy.own_process import SystemClock, machine_id
from ironcurtain_proxy.signing import is_signed_metadata, read_public_key, signer_of
from ironcurtain_proxy.steady_clock import interrupted_after

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
MOST_NAMES: Final = 10


def no_log(log: Path) -> ConfigurationError:
    """Return the error of a log that does not exist."""
    return ConfigurationError(
        f"there is no audit log {log}: either no call was made yet, or the log has another name: "
        "give it with --log or AUDIT_LOG_PATH"
    )


class Logs(Struct, frozen=True):
    """The logs that a command reads."""

    log: Path
    """The log that was named, or the default log."""
    members: Callable[[], tuple[Member, ...]]
    """Gives all logs that exist now."""
    state: Path
    """The directory with the list of known logs."""
    is_named: bool
    """Whether one log was named, so that no other one matters."""


def verify_logs(logs: Logs, options: argparse.Namespace, by_heads: Sequence[str] = ()) -> int:
    """Run `audit verify`. Return 1 if a log is not intact.

    Args:
        logs: the logs.
        options: the arguments.
        by_heads: what is wrong by the heads that were published.
    """
    expect: str | None = options.expect
    if expect is not None:
        expect = expect.lower()
        if not _DIGEST.fullmatch(expect):
            raise ConfigurationError(
                "--expect takes the digest that `audit verify` printed: 64 hexadecimal digits"
            )
    if options.forget is not None:
        return _forget(logs, options.forget)
    members = logs.members()
    several = len(members) > 1
    noted = noted_lines(logs.state)
    gone = () if logs.is_named else missing_logs(logs.log, logs.state)
    found = [
        (
            one,
            verify(
                one.path,
                expect,
                elsewhere=several,
                noted=noted.get(os.path.realpath(one.path)),
                is_copy=options.heads is not None,
            ),
        )
        for one in members
    ]
    is_missing = several and expect is not None and not any(one.has_expected for _, one in found)
    missing = [f"no log has a line with digest {expect}: cut off or changed"] if is_missing else []
    missing += by_heads
    missing += [
        f"the log {printable(str(one))} is gone, which a proxy wrote; if you removed it yourself: "
        f"ironcurtain-proxy audit verify --forget {shlex.quote(printable(str(one)))}"
        for one in gone
    ]
    if options.json:
        say_json(_verdicts_fields(found, missing))
    else:
        for member, verdict in found:
            _say_verdict(member.path, verdict)
        for problem in missing:
            say(f"PROBLEM  {problem}")
        if several or missing:
            say(_summary([verdict for _, verdict in found], missing))
    return 1 if missing or any(verdict.problems for _, verdict in found) else 0


def _forget(logs: Logs, log: Path) -> int:
    if not forget_log(logs.state, log):
        raise ConfigurationError(f"{log} is not in the list of known logs")
    say(f"{printable(str(log))} is not missed any more")
    return 0


def _summary(verdicts: list[LogVerdict], missing: list[str]) -> str:
    bad = sum(bool(verdict.problems) for verdict in verdicts)
    lines = sum(verdict.lines for verdict in verdicts)
    told = f"{lines} lines in {len(verdicts)} logs"
    if bad or missing:
        lacks = ", and something is missing" if missing else ""
        return f"NOT WHOLE  {told}: {bad} of them {'is' if bad == 1 else 'are'} not whole{lacks}"
    return f"all whole  {told}, as they were written"


def _verdicts_fields(
    found: list[tuple[Member, LogVerdict]], missing: list[str]
) -> dict[str, object]:
    """Return the result for all logs in the form of one result, and the result for each log."""
    verdicts = [verdict for _, verdict in found]
    problems = [picked(one, "where what") for v in verdicts for one in v.problems]
    problems += [{"where": found[0][0].path.name, "what": what} for what in missing]
    return {
        "ok": not problems,
        "lines": sum(one.lines for one in verdicts),
        "files": sum(one.files for one in verdicts),
        "lastSeq": verdicts[0].last.seq,
        "lastDigest": verdicts[0].last.digest,
        "problems": problems,
        "moreProblems": sum(one.more_problems for one in verdicts),
        "unfinished": [request for one in verdicts for request in one.unfinished],
        "notes": [note for one in verdicts for note in one.notes],
        "logs": [
            {
                "path": str(member.path),
                "ok": not verdict.problems,
                **picked(verdict, "lines files"),
                "lastSeq": verdict.last.seq,
                "lastDigest": verdict.last.digest,
            }
            for member, verdict in found
        ],
    }


def _say_verdict(log: Path, verdict: LogVerdict) -> None:
    for problem in verdict.problems:
        say(f"PROBLEM  {problem.where}: {problem.what}")
    if verdict.more_problems:
        say(f"PROBLEM  and {verdict.more_problems} more")
    for request in verdict.unfinished:
        say(f"note     no outcome of call {printable(request)}: it may have been carried out")
    for note in verdict.notes:
        say(f"note     {note}")
    size = f"{verdict.lines} lines in {counted(verdict.files, 'file')}"
    if verdict.problems:
        say(f"NOT WHOLE  {log}: {size}")
        return
    say(f"whole    {log}: {size}, as they were written")
    say(f"last     {verdict.last.digest}")


def count_logs(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit stats`."""
    statistics = Statistics()
    members = logs.members()
    for fields in parsed_lines(members):
        statistics.add(fields)
    count = len(members)
    fields = {**_statistics_fields(statistics), "logs": count}
    say_answer(options, lambda: fields, lambda: _statistics_lines(statistics, count))
    return 0


def _statistics_lines(statistics: Statistics, logs: int) -> Iterator[str]:
    first, last = (local_time(moment) or "-" for moment in (statistics.first, statistics.last))
    where = f" in {logs} logs" if logs > 1 else ""
    yield f"{counted(statistics.calls, 'call')}{where}, {first} to {last}"
    for title, counter in (
        ("decision", statistics.decisions),
        ("by", statistics.deciders),
        ("outcome", statistics.results),
        ("client", statistics.clients),
        ("tool", statistics.tools),
        ("rule", statistics.rules),
    ):
        for name, number in counter.most_common(MOST_NAMES):
            yield f"{title:<10}{number:>9}  {printable(name) or '-'}"
    for share, words in ((0.5, "half"), (0.95, "95%")):
        bound = statistics.duration_below(share)
        if bound is not None:
            yield f"{'duration':<10}{words:>9}  of the forwarded calls took at most {bound} ms"
    if statistics.unfinished:
        yield f"{'open':<10}{statistics.unfinished:>9}  calls have no recorded outcome"


def _statistics_fields(statistics: Statistics) -> dict[str, object]:
    return {
        **picked(statistics, "calls first last unfinished"),
        **picked(statistics, "decisions deciders results clients tools rules"),
        "medianMs": statistics.duration_below(0.5),
        "p95Ms": statistics.duration_below(0.95),
    }


def raw_lines(members: Iterable[Member]) -> Iterator[bytes | None]:
    """Yield the lines of several logs, or None for a line that is too long."""
    for member in members:
        for line in read_lines(member.path):
            yield line.raw


def parsed_lines(members: Iterable[Member]) -> Iterator[dict[str, object]]:
    """Yield the records of several logs. Lines that are no record are left out."""
    for member in members:
        yield from records_of(member.path)


# --- output --------------------------------------------------------------------------------------


def local_time(recorded: str) -> str:
    """Return a record's time in the local time zone."""
    try:
        moment = datetime.fromisoformat(recorded)
    except ValueError:
        return recorded[:19].replace("T", " ")
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def say_raw(line: bytes) -> None:
    """Print a line of a log unchanged."""
    sys.stdout.write(line.decode("utf-8", "backslashreplace") + "\n")


# --- audit ship


_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADS_EVERY: Final = 60.0
_SECONDS: Final = 30.0
_ALL_SECONDS: Final = 300.0
"""For a batch, also where the receiver takes a byte a second."""
_REFUSED: Final = 300
_MOST_SAID: Final = 64 << 10


def ship(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit ship`. Return 1 if the records were not taken."""
    sender, published, told = _sender(options), -_HEADS_EVERY, dict[Path, Shipped]()
    while True:
        is_told = options.every is None
        failed = False in [_is_sent(sender, one, is_told=is_told) for one in logs.members()]
        if options.heads is not None and time.monotonic() - published >= _HEADS_EVERY:
            try:
                _publish(sender, logs, options.heads, told)
                published = time.monotonic()
            except (ShippingError, OSError) as error:
                failed = True
                complain(f"no heads are published: {error}")
        if options.every is None:
            return int(failed)
        time.sleep(options.every)


def _sent_name(member: Member) -> str:
    """Return the name under which a log is sent: in other places there are files of one name."""
    if not member.is_elsewhere:
        return member.path.name
    place = sha256(os.fsencode(os.path.realpath(member.path))).hexdigest()[:8]
    return f"{member.path.name}-{place}"


def _is_sent(sender: Shipper, member: Member, *, is_told: bool) -> bool:
    log = member.path
    try:
        count = sender.ship(log, _sent_name(member))
    except (ShippingError, OSError) as error:
        # A full disk may have room the next time.
        complain(f"{log} is not sent: {error}")
        return False
    if count or is_told:
        say(f"sent {counted(count, 'record')} of {log}")
    return True


def _sender(options: argparse.Namespace) -> Shipper:
    if options.style == "records":
        directory = Path(options.to.removeprefix("file://"))
        if "://" in options.to.removeprefix("file://") or not directory.is_absolute():
            raise ConfigurationError("--format records takes an absolute directory as --to")
        return Shipper(machine=machine_id(), style="records", to=directory)
    address = urlsplit(options.to)
    is_here = address.scheme == "http" and address.hostname in _HERE
    if not is_here and (address.scheme != "https" or not address.hostname):
        raise ConfigurationError(
            f"--to must begin with https:// for {options.style}; http:// is for this machine alone"
        )
    require("fleet", "audit ship")
    return Shipper(machine=machine_id(), style=options.style, to=_poster(options.to))


def _poster(url: str) -> Callable[[bytes, str], None]:
    # An extra's.
    import urllib3  # noqa: PLC0415

    pool = urllib3.PoolManager(timeout=urllib3.Timeout(_SECONDS), retries=False)

    def post(body: bytes, kind: str) -> None:
        headers = {"Content-Type": kind}
        try:
            with interrupted_after(_ALL_SECONDS, ShippingError):
                # What it says is read where it may say that it has not taken all, and to a limit.
                answer = pool.request(
                    "POST", url, body=body, headers=headers, preload_content=False
                )
                is_said = answer.headers.get("Content-Type", "").startswith("application/json")
                said = answer.read(_MOST_SAID) if is_said else b""
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise ShippingError(f"{url} does not take the records: {error}") from error
        if answer.status >= _REFUSED:
            raise ShippingError(f"{url} refused the records with status {answer.status}")
        # As a collector of OpenTelemetry says it, with status 200.
        partial = object_of((parsed(said) or {}).get("partialSuccess"))
        if str(partial.get("rejectedLogRecords", 0)) != "0":
            why = printable(text_of(partial.get("errorMessage")))[:200]
            raise ShippingError(f"{url} refused {partial['rejectedLogRecords']} records: {why}")

    return post


def _publish(sender: Shipper, logs: Logs, directory: Path, told: dict[Path, Shipped]) -> None:
    now = SystemClock().now()
    directory.mkdir(parents=True, exist_ok=True)
    for member in logs.members():
        last, name = sender.last(member.path), sender.machine
        # Thousands of machines that rest publish nothing, each minute.
        if last.seq and told.get(member.path) != last:
            log = last.log or member.path.name
            head = LogHead(machine=name, log=log, seq=last.seq, digest=last.digest, at=now)
            publish(directory / f"{name}{HEADS_SUFFIX}", head)
            told[member.path] = last


def sign_roots(_logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit root`: sign the root of each whole hour that has none."""
    require("fleet", "audit root")
    signer, heads = signer_of(options.key), hours_of(read_heads(options.heads, complain))
    known = read_roots(options.heads, complain)
    hours = hours_to_sign(heads, known, SystemClock().now()) + hours_to_sign_again(heads, known)
    for hour in hours:
        root = root_of(heads[hour], hour)
        mark, counts = signer.sign_metadata(root.data()).hex(), counts_of(heads[hour])
        signed = SignedRoot(root=root, key=signer.key, signature=mark, counts=counts)
        publish(options.heads / ROOTS_NAME, signed)
    say(f"signed {counted(len(hours), 'root')}")
    return 0


def verify_heads(logs: Logs, options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the logs, or copies of them, by the heads that were published."""
    problems: list[str] = []
    heads = read_heads(options.heads, problems.append)
    roots = read_roots(options.heads, problems.append)
    if options.root_key:
        require("fleet", "audit verify --root-key")
        keys = [read_public_key(path) for path in options.root_key]
        by_name = {key.fingerprint: key.raw for key in keys}

        def is_signed(one: SignedRoot) -> bool:
            key, signature = by_name.get(one.key), bytes.fromhex(one.signature)
            return key is not None and is_signed_metadata(key, signature, one.root.data())

        problems += check_roots(hours_of(heads), roots, is_signed, SystemClock().now())
        hours = len({one.root.hour for one in roots})
        complain(f"{counted(hours, 'hour')} with a signed root, over {len(heads)} heads of logs")
    # By the name of the copy that was sent elsewhere.
    by_copy: dict[str, list[LogHead]] = {}
    for one in heads:
        by_copy.setdefault(f"{one.machine}.{one.log}.jsonl", []).append(one)
    own, names = f"{machine_id()}.%s.jsonl", {member.path.name for member in logs.members()}
    for member in logs.members():
        name, copy = member.path.name, own % _sent_name(member)
        problems += check_log(member.path, by_copy.get(name) or by_copy.get(copy, []))
    gone = sorted(by_copy.keys() - names) if logs.log.is_dir() else ()
    return problems + [f"{printable(name)} is gone from {logs.log}" for name in gone]
