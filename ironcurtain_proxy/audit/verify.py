"""The check of a log: every line is unchanged and in its position.

Reads the rotated files and the log in order, line by line, in constant memory. An attacker who can
write the log and its head file can forge both; an anchor kept elsewhere (`--expect`) shows that.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.audit.files import (
    Head,
    Line,
    is_being_written,
    parsed,
    placed_of,
    read_head,
    read_head_file,
    read_lines,
)
from ironcurtain_proxy.audit.records import GENESIS, Link, digest_of

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
            missing = (
                f"record {expected} is"
                if seq == expected + 1
                else (f"records {expected} to {seq - 1} are")
            )
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
