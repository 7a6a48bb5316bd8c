"""Records on their way to other machines: each at least once, by machine and number.

Numbers of records continue across rotated files, so (machine, log, number) identifies a record. The
file `audit.jsonl.shipped` beside the log holds the last record that a destination accepted, and the
offset after it. It is written after the destination has answered. A process that is killed in
between sends the same records again, and the receiver recognises them by their numbers.

    records   the lines as they are, into a directory that others read: DIR/MACHINE.LOG.jsonl
    otlp      to a collector of OpenTelemetry, for example https://collector:4318/v1/logs
    ocsf      events of the Open Cybersecurity Schema Framework, to any receiver of JSON lines
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, get_args

from msgspec import Struct, ValidationError
from msgspec.json import decode, encode

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import entry_of
from ironcurtain_proxy.audit.export import EventChain, as_ocsf, as_otlp
from ironcurtain_proxy.audit.files import MAX_LINE, parsed, placed_of, rotated_paths
from ironcurtain_proxy.audit.records import GENESIS, Link, digest_of
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.private_files import write_whole

Style: TypeAlias = Literal["records", "otlp", "ocsf"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

_BATCH: Final = 500
_BATCH_BYTES: Final = 4 << 20
_SUFFIX: Final = "shipped"


class ShippingError(IronCurtainError):
    """A destination that did not take the records. They are sent again the next time."""


class Shipped(Struct, frozen=True, kw_only=True):
    """The content of the note beside a log."""

    seq: int = 0
    digest: str = GENESIS.digest
    inode: int = 0
    """The file that the last record stands in, which keeps its inode when it is rotated."""
    offset: int = 0
    """The place behind the record."""
    event: str = ""
    """The fingerprint of the last event, to which the next one is chained."""


class Shipment(Struct, frozen=True, kw_only=True):
    """Records that are sent together, and the note once they are taken."""

    lines: tuple[bytes, ...]
    after: Shipped


class Shipper(Struct, frozen=True, kw_only=True):
    """Sends the records of one machine to one destination."""

    machine: str
    style: Style
    post: Callable[[bytes, str], None]
    """Sends bytes of a media type. Raises ShippingError if they were not taken."""
    directory: Path | None = None
    """Where `records` are written."""

    def ship(self, log: Path) -> int:
        """Send what a log has that was not sent yet. Return the number of records.

        Raises:
            ShippingError: the destination does not take them, or the log is not the one it was.
            OSError: a file cannot be read or written.
        """
        note = log.with_name(f"{log.name}.{self._word}")
        state, count = _read_note(note), 0
        while batch := next_batch(log, state):
            state = self._send(log, batch, state)
            write_whole(note, encode(state), locked=True)
            count += len(batch.lines)
        return count

    @property
    def _word(self) -> str:
        return _SUFFIX if self.style == "records" else f"{_SUFFIX}-{self.style}"

    def _send(self, log: Path, batch: Shipment, state: Shipped) -> Shipped:
        if self.style == "records" and self.directory is not None:
            _append(self.directory / f"{self.machine}.{log.name}.jsonl", batch.lines)
            return batch.after
        calls = [
            RecordedCall(fields, entry_of(fields))
            for fields in map(parsed, batch.lines)
            if fields is not None
        ]
        if self.style == "otlp":
            for body in as_otlp(calls, {"host.id": self.machine, "log.file.name": log.name}):
                self.post(body, "application/json")
            return batch.after
        chain = EventChain(f"{self.machine}:{log.name}", state.seq, state.event)
        self.post(b"".join(as_ocsf(calls, chain)), "application/x-ndjson")
        return Shipped(
            seq=batch.after.seq,
            digest=batch.after.digest,
            inode=batch.after.inode,
            offset=batch.after.offset,
            event=chain.last,
        )


def _read_note(path: Path) -> Shipped:
    try:
        return decode(path.read_bytes(), type=Shipped)
    except FileNotFoundError:
        return Shipped()
    except ValidationError as error:
        raise ConfigurationError(f"{path} is damaged: remove it to send all again") from error


def next_batch(log: Path, state: Shipped) -> Shipment | None:
    """Return the next records of a log, or None if all were sent.

    Raises:
        ShippingError: the record that was sent last is gone, or is another one now.
        OSError: a file cannot be read.
    """
    lines: list[bytes] = []
    size, after = 0, state
    for line, inode, offset in _lines_after(log, state):
        fields = parsed(line)
        seq = 0 if fields is None else placed_of(fields).seq or 0
        if seq <= after.seq:
            # Sent before, or no record of ours: the number says so.
            continue
        lines.append(line)
        size += len(line)
        after = Shipped(
            seq=seq, digest=digest_of(line), inode=inode, offset=offset, event=state.event
        )
        if len(lines) >= _BATCH or size >= _BATCH_BYTES:
            break
    return Shipment(lines=tuple(lines), after=after) if lines else None


def _lines_after(log: Path, state: Shipped) -> Iterator[tuple[bytes, int, int]]:
    """Yield the complete lines behind the last one that was sent, each with its file and end."""
    is_found = state.seq == 0
    for path in _files(log):
        with suppress(FileNotFoundError), path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if not is_found:
                if inode != state.inode:
                    continue
                is_found = True
                _check_place(path, file, state)
                file.seek(state.offset)
            yield from _complete(file, inode)
    if not is_found:
        # Copied or restored: looked for by its number, from the beginning.
        again = Shipped(seq=0)
        has_passed = False
        for line, inode, offset in _lines_after(log, again):
            if has_passed:
                yield line, inode, offset
            has_passed = has_passed or digest_of(line) == state.digest
        if not has_passed:
            raise ShippingError(
                f"{log} has no record {state.seq} as it was sent: it was cut off, edited or "
                "replaced; see `ironcurtain-proxy audit verify`"
            )


def _complete(file: BinaryIO, inode: int) -> Iterator[tuple[bytes, int, int]]:
    while raw := file.readline(MAX_LINE + 1):
        if not raw.endswith(b"\n"):
            return
        yield raw[:-1], inode, file.tell()


def _check_place(path: Path, file: BinaryIO, state: Shipped) -> None:
    """Refuse a file whose last sent record is another one now."""
    start = max(0, state.offset - MAX_LINE - 1)
    file.seek(start)
    before = file.read(state.offset - start)
    last = before[:-1].rpartition(b"\n")[2]
    if not before.endswith(b"\n") or digest_of(last) != state.digest:
        raise ShippingError(
            f"{path} has another record {state.seq} than the one that was sent: it was edited or "
            "cut off; see `ironcurtain-proxy audit verify`"
        )


def _files(log: Path) -> list[Path]:
    """Return the files of a log, oldest first. The log may be rotated away meanwhile."""
    return [*rotated_paths(log), log]


def _append(path: Path, lines: tuple[bytes, ...]) -> None:
    """Add lines to a file, but those that it has already, and put it onto the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - MAX_LINE - 1)
        file.seek(start)
        tail = file.read()
        whole = tail.rfind(b"\n") + 1
        # What a kill or a full disk left of a line.
        file.truncate(start + whole)
        last = _last_seq(tail[:whole])
        new = [line for line in lines if (placed_of(parsed(line) or {}).seq or 0) > last]
        try:
            file.write(b"".join([line + b"\n" for line in new]))
            file.flush()
        finally:
            os.fsync(file.fileno())


def _last_seq(tail: bytes) -> int:
    fields: Mapping[str, object] = parsed(tail[:-1].rpartition(b"\n")[2]) or {}
    return placed_of(fields).seq or 0


def link_of(log: Path) -> Link | None:
    """Return the last record that was sent of a log, or None if none was."""
    state = _read_note(log.with_name(f"{log.name}.{_SUFFIX}"))
    return None if state.seq == 0 else Link(state.seq, state.digest)
