"""`audit verify` and `audit stats`: results for whole logs, together and for each log."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.display import printable
from ironcurtain_proxy.audit.family import Member
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.reading import read_lines
from ironcurtain_proxy.audit.statistics import Statistics
from ironcurtain_proxy.audit.verify import LogVerdict, verify
from ironcurtain_proxy.cli.output import counted, say, say_json
from ironcurtain_proxy.errors import ConfigurationError

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
MOST_NAMES: Final = 10


def no_log(log: Path) -> ConfigurationError:
    """The error of a log that does not exist."""
    return ConfigurationError(
        f"there is no audit log {log}: either no call was made yet, or the log has another name: "
        "give it with --log or AUDIT_LOG_PATH"
    )


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs that a command reads."""

    log: Path
    """The log that was named, or the default log."""
    members: Callable[[], tuple[Member, ...]]
    """Gives all logs that exist now."""


def verify_logs(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit verify`. 1 if a log is not intact."""
    expect: str | None = options.expect
    if expect is not None:
        expect = expect.lower()
        if not _DIGEST.fullmatch(expect):
            raise ConfigurationError(
                "--expect takes the digest that `audit verify` printed: 64 hexadecimal digits"
            )
    members = logs.members()
    several = len(members) > 1
    found = [(one, verify(one.path, expect, elsewhere=several)) for one in members]
    is_missing = several and expect is not None and not any(one.has_expected for _, one in found)
    missing = f"no log has a line with digest {expect}: cut off or changed" if is_missing else ""
    if options.json:
        say_json(_verdicts_fields(found, missing))
    else:
        for member, verdict in found:
            _say_verdict(member.path, verdict)
        if missing:
            say(f"PROBLEM  {missing}")
        if several:
            say(_summary([verdict for _, verdict in found], missing))
    return 1 if missing or any(verdict.problems for _, verdict in found) else 0


def _summary(verdicts: list[LogVerdict], missing: str) -> str:
    bad = sum(bool(verdict.problems) for verdict in verdicts)
    lines = sum(verdict.lines for verdict in verdicts)
    told = f"{lines} lines in {len(verdicts)} logs"
    if bad or missing:
        return f"NOT WHOLE  {told}: {bad} of the logs {'is' if bad == 1 else 'are'} not whole"
    return f"all whole  {told}, as they were written"


def _verdicts_fields(found: list[tuple[Member, LogVerdict]], missing: str) -> dict[str, object]:
    """The result for all logs in the form of one result, and the result for each log."""
    verdicts = [verdict for _, verdict in found]
    problems = [{"where": one.where, "what": one.what} for v in verdicts for one in v.problems]
    if missing:
        problems.append({"where": found[0][0].path.name, "what": missing})
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
                "lines": verdict.lines,
                "files": verdict.files,
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
    if options.json:
        say_json({**_statistics_fields(statistics), "logs": len(members)})
    else:
        _say_statistics(statistics, len(members))
    return 0


def _say_statistics(statistics: Statistics, logs: int) -> None:
    first, last = (local_time(moment) or "-" for moment in (statistics.first, statistics.last))
    where = f" in {logs} logs" if logs > 1 else ""
    say(f"{counted(statistics.calls, 'call')}{where}, {first} to {last}")
    for title, counter in (
        ("decision", statistics.decisions),
        ("by", statistics.deciders),
        ("outcome", statistics.results),
        ("client", statistics.clients),
        ("tool", statistics.tools),
        ("rule", statistics.rules),
    ):
        for name, number in counter.most_common(MOST_NAMES):
            say(f"{title:<10}{number:>9}  {printable(name) or '-'}")
    for share, words in ((0.5, "half"), (0.95, "95%")):
        bound = statistics.duration_below(share)
        if bound is not None:
            say(f"{'duration':<10}{words:>9}  of the forwarded calls took at most {bound} ms")
    if statistics.unfinished:
        say(f"{'open':<10}{statistics.unfinished:>9}  calls have no recorded outcome")


def _statistics_fields(statistics: Statistics) -> dict[str, object]:
    return {
        "calls": statistics.calls,
        "first": statistics.first,
        "last": statistics.last,
        "decisions": dict(statistics.decisions),
        "deciders": dict(statistics.deciders),
        "results": dict(statistics.results),
        "clients": dict(statistics.clients),
        "tools": dict(statistics.tools),
        "rules": dict(statistics.rules),
        "medianMs": statistics.duration_below(0.5),
        "p95Ms": statistics.duration_below(0.95),
        "unfinished": statistics.unfinished,
    }


def raw_lines(members: Iterable[Member]) -> Iterator[bytes | None]:
    """The lines of several logs; None for a line that is too long."""
    for member in members:
        for line in read_lines(member.path):
            yield line.raw


def parsed_lines(members: Iterable[Member]) -> Iterator[dict[str, object]]:
    """The records of several logs. Lines that are no record are left out."""
    for raw in raw_lines(members):
        fields = None if raw is None else parsed(raw)
        if fields is not None:
            yield fields


# --- output --------------------------------------------------------------------------------------


def local_time(recorded: str) -> str:
    """A record's time in the local time zone."""
    try:
        moment = datetime.fromisoformat(recorded)
    except ValueError:
        return recorded[:19].replace("T", " ")
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def say_raw(line: bytes) -> None:
    """Print a line of a log unchanged."""
    sys.stdout.write(line.decode("utf-8", "backslashreplace") + "\n")
