"""Transcripts on the disk: their files, and the calls of their lines.

Lines that are too long, broken or of another form are counted and skipped, and so are unreadable
files.
"""

import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

import orjson

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.rehearsal import claude_code, codex, corpus, gemini
from ironcurtain_proxy.rehearsal.recorded import Recording, TranscriptCall

_MAX_LINE: Final = 64 << 20
"""The most bytes of one line, and of a chat that is one document."""
_ENDINGS: Final = (".jsonl", ".jsonl.gz", ".json")


def read_transcripts(paths: Iterable[Path]) -> Recording:
    """All calls of these files, and of those in these directories.

    Raises:
        ConfigurationError: one of the paths is not there.
    """
    reader = _TranscriptReader()
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"{path}: no such file or directory")
        for file in _files(path):
            reader.read(file)
    return reader.finished()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for directory, inner, names in os.walk(path):
        inner.sort()
        for name in sorted(names):
            if name.endswith(_ENDINGS):
                yield Path(directory, name)


class _TranscriptReader:
    def __init__(self) -> None:
        self._recording = Recording()
        self._by_id: dict[str, int] = {}
        """The position of each call with an id."""
        self._refused: set[str] = set()

    def finished(self) -> Recording:
        calls = self._recording.calls
        for identifier in self._refused & self._by_id.keys():
            at = self._by_id[identifier]
            calls[at] = replace(calls[at], refused=True)
        return self._recording

    def read(self, file: Path) -> None:
        before = len(self._recording.calls), self._recording.broken_lines
        known = readable = False
        rollout = codex.Rollout(session=file.stem)
        try:
            for line in _lines(file):
                known |= self._line(line, rollout)
            readable = True
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._recording.unreadable.append(f"{file}: {why}")
        self._recording.files += 1
        now = (len(self._recording.calls), self._recording.broken_lines)
        if readable and not known and before == now:
            self._recording.other_files += 1

    def _line(self, line: bytes | None, rollout: codex.Rollout) -> bool:
        """Read one line. Returns whether it is of a known format."""
        if line is not None and line.isspace():
            return False
        try:
            row = None if line is None else orjson.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            self._recording.broken_lines += 1
            return False
        return self._row(row, rollout)

    def _row(self, row: Mapping[str, Json], rollout: codex.Rollout) -> bool:
        if corpus.is_of_corpus(row):
            self._add([corpus.call_of(row)])
        elif claude_code.is_of_claude_code(row):
            self._refused.update(claude_code.refusals_of(row))
            for found in claude_code.calls_of(row):
                self._once(found)
        elif gemini.is_of_gemini(row):
            self._add(gemini.calls_of(row))
        elif codex.is_of_codex(row):
            self._add(rollout.calls_of(row))
        else:
            return False
        return True

    def _once(self, found: tuple[str, TranscriptCall] | None) -> None:
        if found is None:
            self._recording.broken_lines += 1
            return
        identifier, call = found
        if identifier and identifier in self._by_id:
            return
        if identifier:
            self._by_id[identifier] = len(self._recording.calls)
        self._recording.calls.append(call)

    def _add(self, calls: Iterable[TranscriptCall | None]) -> None:
        for call in calls:
            if call is None:
                self._recording.broken_lines += 1
            else:
                self._recording.calls.append(call)


def _lines(file: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long. A `.json` is one line."""
    # O_NONBLOCK: opening a pipe nobody writes to would hang.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with ExitStack() as opened:
        source: IO[bytes] | gzip.GzipFile = opened.enter_context(os.fdopen(descriptor, "rb"))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        if file.name.endswith(".gz"):
            source = opened.enter_context(gzip.GzipFile(fileobj=source))
        if file.name.endswith(".json"):
            whole = source.read(_MAX_LINE + 1)
            yield whole if len(whole) <= _MAX_LINE else None
            return
        while line := source.readline(_MAX_LINE):
            rest = line
            while len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
                rest = source.readline(_MAX_LINE)
            yield line if rest is line else None
