"""The check of a log, and the heads and roots that show a log rewritten.

`verify` finds out whether every line is unchanged and in its position. It reads the rotated files
and the log in order, line by line, in constant memory. An attacker who can write the log and its
head file can forge both; an anchor kept elsewhere (`--expect`) shows that.

Heads of logs are published every minute, and one signed root over them for each hour.

    {"machine": "9b1d…", "log": "audit.jsonl", "seq": 812, "digest": "5d41…", "at": "2026-11-28T…"}

A head says which record was the last at a moment. A machine that rewrites its log afterwards has no
record of that number and digest any more. Whoever keeps the heads could drop or change them in its
favour: so a Merkle tree (RFC 6962) is built over the last head of each log in an hour, and its root
is signed and published elsewhere. Anybody with heads and roots finds both.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import DecodeError, Meta, Struct, field
from msgspec.json import decode, encode

from ironcurtain_proxy.audit.files import (
    Head,
    Line,
    head_path,
    is_being_written,
    parsed,
    placed_of,
    read_head,
    read_head_file,
    read_lines,
)
from ironcurtain_proxy.audit.records import GENESIS, Link, digest_of
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import append_line, opened, read_regular

# --- the check of a log

_ATTEMPTS: Final = 40
_PAUSE: Final = 0.05
"""Seconds between two looks at the head file of a log that is being written: a process notes its
lines every twentieth of a second, later on a slow disk."""
_MOST_PROBLEMS: Final = 100
"""The most problems that are listed: another kind of file has one in every line."""


class LogProblem(Struct, frozen=True):
    """One fault of a log."""

    where: str
    """`audit.jsonl line 7`, or a file."""
    what: str


class LogVerdict(Struct, frozen=True, kw_only=True):
    """The result of a check."""

    problems: tuple[LogProblem, ...]
    """The first hundred problems, or empty if the log is intact."""
    more_problems: int
    notes: tuple[str, ...]
    """Remarks that are no faults."""
    lines: int
    files: int
    last: Link
    """The anchor to keep elsewhere."""
    has_expected: bool = False
    """Whether the line that must be there is."""
    unfinished: tuple[str, ...]
    """Request ids of intents without outcome, in order: calls that a crash, or a full disk, left
    open, and those that are under way right now."""


def verify(
    log: Path,
    expect: str | None = None,
    *,
    elsewhere: bool = False,
    noted: Link | None = None,
    is_copy: bool = False,
) -> LogVerdict:
    """Check a log with all files it was rotated into.

    Args:
        log: its path; the others are found beside it.
        expect: the digest of a line that must be there.
        elsewhere: whether the line may stand in another log: then that it is not here is no
            problem, see `LogVerdict.has_expected`.
        noted: the line that the list of known logs knows, or None if it knows none.
        is_copy: whether the log may have no head file, because published heads say where it ends.

    Raises:
        OSError: it cannot be read.
    """
    check = _Verification(log, expect, noted or GENESIS, elsewhere=elsewhere, is_copy=is_copy)
    for line in read_lines(log):
        check.take(line)
    return check.finish()


class _Verification:
    """The state of a check after each line."""

    def __init__(
        self, log: Path, expect: str | None, noted: Link, *, elsewhere: bool, is_copy: bool
    ) -> None:
        self.log = log
        self.problems: list[LogProblem] = []
        self.more = 0
        self.notes: list[str] = []
        self.lines = 0
        self.files: set[str] = set()
        self.unchained = 0
        self.last = GENESIS
        self.last_where = "the beginning"
        self.is_begun = False
        self.is_elsewhere, self.is_copy, self.noted = elsewhere, is_copy, noted
        self.open_intents: dict[str, None] = {}
        # Read before the lines: a log that grows meanwhile is never behind its head.
        self.known = self._read_head()
        self.head = None if self.known is None else self.known.link
        self.after_head = _Mark(None if self.head is None else self.head.digest)
        # The head was written before the first line: every line follows it.
        self.after_head.is_passed = self.head is not None and self.head.seq == 0
        self.after_expected = _Mark(expect)
        self.after_noted = _Mark(noted.digest)

    def take(self, line: Line) -> None:
        self.files.add(line.file)
        if line.raw is None:
            self._take_broken(line)
            return
        self.lines += 1
        digest = digest_of(line.raw)
        fields = parsed(line.raw)
        if fields is None:
            self.report(line.where, "is not a record: it was edited or inserted")
            # Counted as the record that should stand here.
            self.last = Link(self.last.seq + 1, digest)
        else:
            self._take_record(line, fields, digest)
        self.last_where = line.where
        self.after_head.pass_by(digest)
        self.after_expected.pass_by(digest)
        self.after_noted.pass_by(digest)

    def _take_broken(self, line: Line) -> None:
        if line.is_torn and is_being_written(self.log):
            self.notes.append("the last line is just being written")
        elif line.is_torn:
            self.report(line.where, "is cut off before its end; the next start sets it aside")
        else:
            self.report(line.where, "is longer than any record")

    def _take_record(self, line: Line, fields: dict[str, object], digest: str) -> None:
        place = placed_of(fields)
        if not place.is_chained and not self.is_begun:
            self.unchained += 1
            self.last = Link(0, digest)
            return
        self.is_begun = True
        seq = place.seq or 0
        wrong = self._what_is_wrong(seq, follows=place.prev == self.last.digest)
        if wrong:
            self.report(line.where, wrong)
        self.last = Link(seq if seq > 0 else self.last.seq + 1, digest)
        request = str(fields.get("requestId"))
        if fields.get("phase") == "intent":
            self.open_intents[request] = None
        else:
            self.open_intents.pop(request, None)

    def _what_is_wrong(self, seq: int, *, follows: bool) -> str | None:
        """Return the tampering that a line's number and `prev` show."""
        expected = self.last.seq + 1
        if seq > expected:
            missing = f"record {expected} is"
            if seq > expected + 1:
                missing = f"records {expected} to {seq - 1} are"
            return f"is record {seq}, but {missing} missing before it"
        if seq < expected:
            return (
                f"is numbered {seq} where {expected} belongs: moved, repeated, inserted or edited"
            )
        if follows:
            return None
        return (
            f"does not follow from {self.last_where}: one of the two was edited, most likely that"
        )

    def report(self, where: str, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(LogProblem(where, what))
        else:
            self.more += 1

    def finish(self) -> LogVerdict:
        self._check_head()
        if self.noted.seq > 0 and not self.after_noted.is_passed:
            self.report(
                self.log.name,
                f"has no record {self.noted.seq} as it was when a proxy last started or ended: the"
                " log was cut off, edited, or replaced by an older copy",
            )
        expected = self.after_expected
        if expected.digest is not None and not expected.is_passed and not self.is_elsewhere:
            self.report(
                self.log.name, f"has no line with digest {expected.digest}: cut off or changed"
            )
        elif expected.lines:
            self.notes.append(f"{expected.lines} lines follow the expected one")
        if self.unchained:
            self.notes.append(f"{self.unchained} lines from before the chain began are not covered")
        return LogVerdict(
            problems=tuple(self.problems),
            more_problems=self.more,
            notes=tuple(self.notes),
            lines=self.lines,
            files=len(self.files),
            last=self.last,
            has_expected=expected.is_passed,
            unfinished=tuple(self.open_intents),
        )

    def _read_head(self) -> Head | None:
        try:
            return read_head_file(self.log)
        except ValueError as error:
            self.report(f"{self.log.name}.head", f"is not a head file: {error}")
            return None

    def _check_head(self) -> None:
        name = self.log.name
        if self.head is None:
            if self.is_begun and not self.problems and not self.is_copy:
                self.report(f"{name}.head", "is missing: whether lines were cut off is not known")
        elif self.after_head.is_passed:
            if self.after_head.lines:
                self._judge_what_follows(self.head)
        elif self.last.seq < self.head.seq:
            self.report(
                name,
                f"ends with record {self.last.seq}, but the head file knows {self.head.seq}:"
                " its end was cut off",
            )
        else:
            self.report(
                name, f"has another record {self.head.seq} than the head file: it was edited"
            )

    def _judge_what_follows(self, head: Link) -> None:
        """Report lines that the head file does not know, unless a killed process left them."""
        number = self.after_head.lines
        said = f"{number} {'line follows' if number == 1 else 'lines follow'} record {head.seq}"
        if self.known is not None and self.known.closed:
            self.report(
                self.log.name, f"{said}, with which the log was closed: somebody else added that"
            )
        elif is_being_written(self.log):
            if not self._head_follows():
                self.report(
                    self.log.name,
                    f"{said}, the last that the proxy that is running has noted: it could note no"
                    " more (is its disk full?), or somebody else added that",
                )
        else:
            self.notes.append(
                f"{said}, the last in the head file: the proxy was killed before it could note"
                " more, or somebody else added that"
            )

    def _head_follows(self) -> bool:
        """Wait until the process that writes has noted the last line that was read."""
        for _ in range(_ATTEMPTS):
            with suppress(ValueError):  # it is just being written
                now = read_head(self.log) or GENESIS
                if now == self.last or now.seq > self.last.seq:
                    return True
            time.sleep(_PAUSE)
        return False


class _Mark:
    """Whether a given line was found, and how many followed it."""

    def __init__(self, digest: str | None) -> None:
        self.digest = digest
        self.is_passed = False
        self.lines = 0

    def pass_by(self, digest: str) -> None:
        self.lines += self.is_passed
        self.is_passed = self.is_passed or digest == self.digest


# --- heads and roots

HEADS_SUFFIX: Final = ".heads.jsonl"
"""Each machine has a file of its own, so that none writes what another has."""
ROOTS_NAME: Final = "roots.jsonl"
HOUR: Final = timedelta(hours=1)
_HOUR: Final = "%Y-%m-%d %H:%M"
_MOST_BYTES: Final = 1 << 30
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Hex = Annotated[str, Meta(pattern="^(?:[0-9a-f]{2})+$")]
_Moment = Annotated[datetime, Meta(tz=True)]


class LogHead(Struct, frozen=True, kw_only=True):
    """The last record of one log at one moment."""

    machine: str
    log: str
    seq: int
    digest: _Digest
    at: _Moment

    def __post_init__(self) -> None:
        if not 2000 <= self.at.year < 9000:  # noqa: PLR2004  hours before and after can be named
            raise ValueError("its time is of no log")


Hours: TypeAlias = dict[datetime, list[LogHead]]


class HourRoot(Struct, frozen=True, kw_only=True):
    """The root over the heads of one hour."""

    purpose: str
    hour: _Moment
    logs: int
    root: _Digest

    def data(self) -> bytes:
        """Return the bytes that are signed."""
        return encode(self)


class SignedRoot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A root with its signature."""

    root: HourRoot
    key: str
    signature: _Hex
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of heads that the root covers, by machine and log. If it is empty, the root covers
    all heads of the hour. It needs no signature: with a wrong number the root does not match."""

    def covered(self, hours: Hours) -> list[LogHead]:
        """Return the heads of its hour that were there when it was signed, in their order."""
        left = {(name, log): n for name, own in self.counts.items() for log, n in own.items()}
        found = []
        for one in hours.get(self.root.hour, []):
            key = (one.machine, one.log)
            left[key] = left.get(key, 0) - 1
            found += [one] if left[key] >= 0 or not self.counts else []
        return found

    def fits(self, hours: Hours) -> bool:
        """Return whether it is the root of the heads that it covers."""
        return root_of(self.covered(hours), self.root.hour) == self.root

    def late(self, hours: Hours) -> list[str]:
        """Return the machines with heads that came after it was signed: their clock is behind."""
        now = counts_of(hours.get(self.root.hour, [])) if self.counts else {}
        return sorted([
            name
            for name, own in now.items()
            if any(n > self.counts.get(name, {}).get(log, 0) for log, n in own.items())
        ])  # fmt: skip


_PURPOSE: Final = "ironcurtain-heads-1"
T = TypeVar("T", LogHead, SignedRoot)


def merkle_root(leaves: list[bytes]) -> bytes:
    """Return the root of a Merkle tree, as RFC 6962 has it."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    parts = merkle_root(leaves[:split]) + merkle_root(leaves[split:])
    return sha256(b"\1" + parts).digest()


def hours_of(heads: Iterable[LogHead]) -> Hours:
    """Return heads by the beginning of the hour, UTC, that they say they are of."""
    hours: Hours = {}
    for one in heads:
        hour = one.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        hours.setdefault(hour, []).append(one)
    return hours


def counts_of(heads: Iterable[LogHead]) -> dict[str, dict[str, int]]:
    """Return how many heads of an hour each log has, by machine and log."""
    counts: dict[str, dict[str, int]] = {}
    for one in heads:
        own = counts.setdefault(one.machine, {})
        own[one.log] = own.get(one.log, 0) + 1
    return counts


def root_of(heads: Iterable[LogHead], hour: datetime) -> HourRoot:
    """Return the root over the last head of each log, of the heads of an hour."""
    last: dict[tuple[str, str], LogHead] = {}
    for head in heads:
        key = (head.machine, head.log)
        # By the number: a clock that is set back in that hour makes no older record the last.
        last[key] = max(last.get(key, head), head, key=lambda one: (one.seq, one.at))
    leaves = [encode(last[key]) for key in sorted(last)]
    root = merkle_root(leaves).hex()
    return HourRoot(purpose=_PURPOSE, hour=hour, logs=len(leaves), root=root)


def publish(path: Path, one: LogHead | SignedRoot) -> None:
    """Add a head or a root to its file, on a line of its own also behind a torn one.

    Raises:
        OSError: it cannot be written.
    """
    last = b"\n"
    with suppress(FileNotFoundError), opened(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        last = file.read() or last
    begin = b"" if last == b"\n" else b"\n"
    append_line(path, b"%b%b\n" % (begin, encode(one)), _MOST_BYTES)


def copies_in(directory: Path) -> list[tuple[str, Path]]:
    """Return the copies of logs that machines have sent to a directory, each with its machine.

    Raises:
        ConfigurationError: there is none.
    """
    paths = [one for one in directory.rglob("*.*.jsonl") if not one.name.endswith(HEADS_SUFFIX)]
    if not paths:
        raise ConfigurationError(f"{directory} has no records of `audit ship`")
    return [(path.name.partition(".")[0], path) for path in sorted(paths)]


def read_heads(directory: Path, complain: Callable[[str], None]) -> list[LogHead]:
    """Return all heads of a directory. A line that is none is complained of, and left out.

    Raises:
        ConfigurationError: it holds no file of heads, or one that cannot be read.
    """
    paths = sorted(directory.glob(f"*{HEADS_SUFFIX}"))
    if not paths:
        raise ConfigurationError(f"{directory} has no heads: `audit ship --heads` publishes them")
    heads = []
    for path in paths:
        for head in _read(path, LogHead, complain):
            # A machine that writes its own file alone must accuse no other one, nor hide its heads.
            if path.name == f"{head.machine}{HEADS_SUFFIX}":
                heads.append(head)
            else:
                complain(f"{path} has a head of another machine: {head.machine[:64]!r}")
    return heads


def read_roots(directory: Path, complain: Callable[[str], None]) -> list[SignedRoot]:
    """Return all signed roots of a directory, or nothing if it has none, in the same way."""
    path = directory / ROOTS_NAME
    return list(_read(path, SignedRoot, complain)) if path.exists() else []


def _read(path: Path, kind: type[T], complain: Callable[[str], None]) -> Iterator[T]:
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if line:
            try:
                yield decode(line, type=kind)
            except DecodeError as error:
                # Torn by a full disk, or written by somebody who wants nothing to be compared.
                complain(f"{path}, line {number}, cannot be read: {error}")


def check_log(log: Path, heads: Iterable[LogHead]) -> list[str]:
    """Return what is wrong with a log, or a copy of it, by the heads that were published of it."""
    wanted: dict[int, set[str]] = {}
    for head in heads:
        wanted.setdefault(head.seq, set()).add(head.digest)
    if not wanted and not head_path(log).exists():
        return [f"no head of {log} was published: whether lines were cut off is not known"]
    found: dict[int, str] = {}
    for line in read_lines(log):
        if line.raw is not None and (fields := parsed(line.raw)) is not None:
            seq = placed_of(fields).seq or 0
            if seq in wanted:
                found[seq] = digest_of(line.raw)
    problems = [
        f"{log} has no record {seq}, which was its head" for seq in sorted(wanted.keys() - found)
    ]
    problems += [
        f"{log} has another record {seq} than the head that was published: it was rewritten"
        for seq in sorted(found)
        if wanted[seq] != {found[seq]}
    ]
    return problems


def check_roots(
    hours: Hours, roots: list[SignedRoot], is_signed: Callable[[SignedRoot], bool], now: datetime
) -> list[str]:
    """Return what is wrong with the heads, by the signed roots.

    Args:
        hours: all heads that were kept.
        roots: of the hours.
        is_signed: whether a root is signed, and by a key that counts.
        now: the time. The last whole hour may not be signed yet.
    """
    right = [one for one in roots if is_signed(one)]
    problems = [
        f"the root of the hour {one.root.hour:{_HOUR}} is not signed by a key that counts"
        for one in roots
        if one not in right
    ]
    problems += [
        f"the heads of the hour {one.root.hour:{_HOUR}} are not those that were signed: some were "
        "changed, added or dropped"
        for one in right
        if not one.fits(hours)
    ]
    problems += [
        f"heads of the hour {one.root.hour:{_HOUR}} came after it was signed, and nothing "
        f"else of it was changed: the clock of {', '.join(late)[:200]!r} is behind, or was set "
        "back (`audit root` signs them, too)"
        for one in {root.root.hour: root for root in right}.values()
        if (late := one.late(hours))
    ]
    # Whoever changes heads must not get rid of what shows it by removing the root of that hour.
    return problems + [
        f"the heads of the hour {hour:{_HOUR}} have no root: it was removed, the heads were added, "
        "or `audit root` did not run"
        for hour in hours_to_sign(hours, right, now - HOUR)
    ]


def hours_to_sign_again(hours: Hours, roots: Iterable[SignedRoot]) -> list[datetime]:
    """Return the hours whose newest root leaves out heads that came later, and is right else."""
    return [
        one.root.hour
        for one in {root.root.hour: root for root in roots}.values()
        if one.late(hours) and one.fits(hours)
    ]


def hours_to_sign(hours: Hours, roots: Iterable[SignedRoot], now: datetime) -> list[datetime]:
    """Return the whole hours with heads that have no root yet, oldest first."""
    known = {one.root.hour for one in roots}
    return sorted([hour for hour in hours if hour not in known and now - hour >= HOUR])
