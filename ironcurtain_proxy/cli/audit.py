"""`ironcurtain-proxy audit`: read, follow and verify the audit log."""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import orjson

from ironcurtain_proxy.audit.display import Entry, details, entry_of, header, printable, row
from ironcurtain_proxy.audit.files import parsed, rotated_paths
from ironcurtain_proxy.audit.reading import last_lines, read_lines
from ironcurtain_proxy.audit.statistics import Statistics
from ironcurtain_proxy.audit.verify import Verdict, verify
from ironcurtain_proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from ironcurtain_proxy.cli import Subparsers

DESCRIPTION: Final = """\
Every tool call leaves a line in the audit log: what was asked, what was decided and by which rule,
and what became of it. These commands show the log and prove that nobody changed it.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy audit tail              the last 20 calls
  ironcurtain-proxy audit tail -n 100 -f    the last 100, and what comes
  ironcurtain-proxy audit show 75b32e3b-0f0e-4a52-9d4c-5a1c3a0f7b11
  ironcurtain-proxy audit verify            was a line edited, removed or reordered?
  ironcurtain-proxy audit stats --json
"""

VERIFY_EXAMPLE: Final = """\
Exit code 0: every line is as it was written. 1: something is wrong. 2: there is no such log.

example:
  ironcurtain-proxy audit verify
  ironcurtain-proxy audit verify --expect "$(cat /media/stick/anchor)"

Whoever can write both the log and its head file can forge both. Keep the digest that `verify`
prints somewhere else, and name it with --expect the next time: then a cut is found in any case.
"""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_POLL_SECONDS: Final = 0.2
_MOST_NAMES: Final = 10


def add_parser(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "audit",
        help="read, follow and verify the audit log",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="audit_command", metavar="COMMAND", required=True)

    def command(name: str, words: str, epilog: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=words,
            description=words[0].upper() + words[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.add_argument(
            "--log",
            type=Path,
            metavar="PATH",
            help="the log (default: AUDIT_LOG_PATH, else ~/.ironcurtain/audit.jsonl)",
        )
        added.add_argument("--json", action="store_true", help="write JSON")
        return added

    tail = command(
        "tail", "show the last calls", "example:\n  ironcurtain-proxy audit tail -n 50 -f"
    )
    tail.add_argument("path", nargs="?", type=Path, metavar="LOG", help="the same as --log")
    tail.add_argument("-n", type=_count, default=20, metavar="N", help="how many (default 20)")
    tail.add_argument("-f", action="store_true", dest="follow", help="go on with what comes")
    show = command(
        "show",
        "show all that is recorded of one call",
        "example:\n  ironcurtain-proxy audit show 42",
    )
    show.add_argument("reference", metavar="REQUEST_ID|SEQ", help="which call, or which line")
    show.add_argument("path", nargs="?", type=Path, metavar="LOG", help="the same as --log")
    check = command("verify", "find out whether the log is as it was written", VERIFY_EXAMPLE)
    check.add_argument("path", nargs="?", type=Path, metavar="LOG", help="the same as --log")
    check.add_argument("--expect", metavar="HASH", help="the digest of a line that must be there")
    stats = command(
        "stats", "count what was called and decided", "example:\n  ironcurtain-proxy audit stats"
    )
    stats.add_argument("path", nargs="?", type=Path, metavar="LOG", help="the same as --log")


def run(options: argparse.Namespace) -> int:
    """Carry out one of the commands. 0 if all is well, 1 if a problem was found."""
    log = options.log or options.path or _default_log()
    try:
        return _COMMANDS[options.audit_command](log.expanduser(), options)
    except BrokenPipeError:
        raise
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"there is no audit log {log}; name another with --log or AUDIT_LOG_PATH"
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigurationError(
            f"audit log {log}: {why}; name another with --log or AUDIT_LOG_PATH"
        ) from error


def _default_log() -> Path:
    named = os.environ.get("AUDIT_LOG_PATH")
    return Path(named) if named else Path.home() / ".ironcurtain" / "audit.jsonl"


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


# --- tail ----------------------------------------------------------------------------------------


def _tail(log: Path, options: argparse.Namespace) -> int:
    end = _End(log) if options.follow else None
    if options.json:
        for raw in reversed(list(islice(last_lines(log), options.n))):
            _say_raw(raw)
    else:
        last = list(islice(_last_calls(log), options.n))
        _say(header())
        for entry in reversed(last):
            _say(row(entry, colour=_is_colourful()))
    if end is None:
        return 0
    while True:
        for raw in end.new_lines():
            _follow(raw, options)
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _follow(raw: bytes, options: argparse.Namespace) -> None:
    if options.json:
        _say_raw(raw)
        return
    fields = parsed(raw)
    if fields is None:
        return
    entry = entry_of(fields)
    if not entry.is_intent:
        _say(row(entry, colour=_is_colourful()))


def _last_calls(log: Path) -> Iterator[Entry]:
    """Every call, last first: its outcome, or its intent if it has none."""
    finished: set[str] = set()
    for raw in last_lines(log):
        fields = parsed(raw)
        if fields is None:
            continue
        entry = entry_of(fields)
        if entry.is_intent and entry.request_id in finished:
            finished.discard(entry.request_id)
            continue
        if not entry.is_intent:
            finished.add(entry.request_id)
        yield entry


class _End:
    """The end of a log that grows, and may be rotated."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file: BinaryIO = log.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._rest = b""

    def new_lines(self) -> Iterator[bytes]:
        """The lines that were completed since the last time."""
        yield from self._read()
        if not self._is_rotated():
            return
        # It may have got some more lines before, and other files may have filled up meanwhile.
        yield from self._read()
        for path in [*self._rotated_later(), self._log]:
            self._file.close()
            self._file = path.open("rb")
            self._rest = b""
            yield from self._read()

    def _read(self) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        yield from lines

    def _is_rotated(self) -> bool:
        return self._log.exists() and not self._is_ours(self._log)

    def _rotated_later(self) -> list[Path]:
        rotated = rotated_paths(self._log)
        ours = [number for number, path in enumerate(rotated) if self._is_ours(path)]
        return rotated[ours[0] + 1 :] if ours else []

    def _is_ours(self, path: Path) -> bool:
        return os.path.samestat(path.stat(), os.fstat(self._file.fileno()))


# --- show ----------------------------------------------------------------------------------------


def _show(log: Path, options: argparse.Namespace) -> int:
    reference: str = options.reference
    needle = reference.encode()
    found = 0
    for line in read_lines(log):
        if line.raw is None or needle not in line.raw:
            continue
        fields = parsed(line.raw)
        if fields is None or reference not in {fields.get("requestId"), str(fields.get("seq"))}:
            continue
        found += 1
        if options.json:
            _say_raw(line.raw)
            continue
        _say(f"{'' if found == 1 else os.linesep}{line.where}")
        for shown in details(fields):
            _say(f"  {shown}")
    if not found:
        sys.stderr.write(f"ironcurtain-proxy: no record {printable(reference)} in {log}\n")
    return 0 if found else 1


# --- verify --------------------------------------------------------------------------------------


def _verify(log: Path, options: argparse.Namespace) -> int:
    expect: str | None = options.expect
    if expect is not None:
        expect = expect.lower()
        if not _DIGEST.fullmatch(expect):
            raise ConfigurationError(
                "--expect takes the digest that `audit verify` printed: 64 hexadecimal digits"
            )
    verdict = verify(log, expect)
    if options.json:
        _say_raw(orjson.dumps(_verdict_fields(verdict), option=orjson.OPT_INDENT_2))
    else:
        _say_verdict(log, verdict)
    return 1 if verdict.problems else 0


def _verdict_fields(verdict: Verdict) -> dict[str, object]:
    return {
        "ok": not verdict.problems,
        "lines": verdict.lines,
        "files": verdict.files,
        "lastSeq": verdict.last.seq,
        "lastDigest": verdict.last.digest,
        "problems": [{"where": one.where, "what": one.what} for one in verdict.problems],
        "moreProblems": verdict.more_problems,
        "unfinished": verdict.unfinished,
        "notes": verdict.notes,
    }


def _say_verdict(log: Path, verdict: Verdict) -> None:
    for problem in verdict.problems:
        _say(f"PROBLEM  {problem.where}: {problem.what}")
    if verdict.more_problems:
        _say(f"PROBLEM  and {verdict.more_problems} more")
    for request in verdict.unfinished:
        _say(f"note     no outcome of call {printable(request)}: it may have been carried out")
    for note in verdict.notes:
        _say(f"note     {note}")
    size = f"{verdict.lines} lines in {verdict.files} file{'' if verdict.files == 1 else 's'}"
    if verdict.problems:
        _say(f"NOT WHOLE  {log}: {size}")
        return
    _say(f"whole    {log}: {size}, as they were written")
    _say(f"last     {verdict.last.digest}")


# --- stats ---------------------------------------------------------------------------------------


def _stats(log: Path, options: argparse.Namespace) -> int:
    statistics = Statistics()
    for line in read_lines(log):
        fields = None if line.raw is None else parsed(line.raw)
        if fields is not None:
            statistics.add(entry_of(fields))
    if options.json:
        _say_raw(orjson.dumps(_statistics_fields(statistics), option=orjson.OPT_INDENT_2))
        return 0
    _say_statistics(statistics)
    return 0


def _say_statistics(statistics: Statistics) -> None:
    _say(f"{statistics.calls} calls, {statistics.first or '-'} to {statistics.last or '-'} UTC")
    for title, counter in (
        ("decision", statistics.decisions),
        ("outcome", statistics.results),
        ("tool", statistics.tools),
        ("rule", statistics.rules),
    ):
        for name, number in counter.most_common(_MOST_NAMES):
            _say(f"{title:<10}{number:>9}  {printable(name) or '-'}")
    for share in (0.5, 0.95):
        bound = statistics.duration_below(share)
        if bound is not None:
            _say(f"{'duration':<10}{share:>9.0%}  of the forwarded calls within {bound} ms")
    if statistics.unfinished:
        _say(f"{'open':<10}{statistics.unfinished:>9}  calls have no recorded outcome")


def _statistics_fields(statistics: Statistics) -> dict[str, object]:
    return {
        "calls": statistics.calls,
        "first": statistics.first,
        "last": statistics.last,
        "decisions": dict(statistics.decisions),
        "results": dict(statistics.results),
        "tools": dict(statistics.tools),
        "rules": dict(statistics.rules),
        "medianMs": statistics.duration_below(0.5),
        "p95Ms": statistics.duration_below(0.95),
        "unfinished": statistics.unfinished,
    }


# --- output --------------------------------------------------------------------------------------


def _is_colourful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _say_raw(line: bytes) -> None:
    sys.stdout.write(line.decode("utf-8", "backslashreplace") + "\n")


_COMMANDS: Final[dict[str, Callable[[Path, argparse.Namespace], int]]] = {
    "tail": _tail,
    "show": _show,
    "verify": _verify,
    "stats": _stats,
}
