"""How much of the program a call passes through, as a table of calls, functions, files, folders.

    trace_calls.py            print the table
    trace_calls.py --most 15  also the functions that each way calls most often
    trace_calls.py --files    also the files of each way
    trace_calls.py --modules  also the modules that a start imports

A proxy runs under `sys.setprofile`, with a scripted server; this program is the agent and the
reviewer. It counts the calls of functions of `ironcurtain_proxy` in all threads. A coroutine that
goes on after a wait counts as resumed, not as called. The time of a traced call says nothing.

The mailbox, the reload and others look around each second, beside any call. So a way that can be
repeated is gone seven times, and what it called is what all seven called.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from tests.e2e.installation import Installation

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = f"{ROOT}/ironcurtain_proxy/"
OUTPUT: Final = "TRACE_CALLS_OUTPUT"
QUIET: Final = 0.6
"""Seconds without a call after which a way is over."""

REPEATED: Final = 7
SHORT: Final = 0.15
"""Seconds after the answer, for what is repeated: its record is synchronized meanwhile."""


# --- the traced process


def traced() -> None:
    """Run the proxy and write down each of its calls when it ends."""
    sys.path.insert(0, str(ROOT))
    sys.argv.remove("--traced")
    clock = time.monotonic
    events: list[tuple[float, CodeType, int]] = []
    imported: list[tuple[float, str]] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                events.append((clock(), code, frame.f_lasti))

    from ironcurtain_proxy.cli import main  # noqa: PLC0415  counted

    threading.Thread(target=note_imports, args=[imported], daemon=True).start()
    threading.setprofile(profile)
    sys.setprofile(profile)
    leave = os._exit  # `serve` ends by it, so that no thread is waited for

    @cache
    def begins(code: CodeType, instruction: int) -> bool:
        # The argument of RESUME: 0 at the start of a function, else after `yield` or `await`.
        return code.co_code[instruction + 1] & 3 == 0

    def write(code: int) -> None:
        sys.setprofile(None)
        rows = [
            (at, one.co_filename.removeprefix(PACKAGE), one.co_qualname, begins(one, last))
            for at, one, last in [*events]
        ]
        Path(os.environ[OUTPUT]).write_bytes(orjson.dumps([rows, imported]))
        leave(code)

    os._exit = write  # type: ignore[assignment]
    write(main())


def note_imports(imported: list[tuple[float, str]]) -> None:
    """Note the modules of the package when they are imported; never returns."""
    known: set[str] = set()
    while True:
        new = {name for name in [*sys.modules] if name.startswith("ironcurtain_proxy")} - known
        imported.extend((time.monotonic(), name) for name in sorted(new))
        known |= new
        time.sleep(0.005)


# --- the agent


@dataclass
class Way:
    """What one way through the program called."""

    name: str
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    resumed: int = 0
    switches: int = 0
    imported: int = 0

    @property
    def files(self) -> list[str]:
        """The files of the called functions, sorted."""
        return sorted({file for file, _ in self.calls})

    def common(self, other: "Way") -> "Way":
        """Return what both called, and the smaller of each other figure."""
        return Way(
            self.name,
            self.calls & other.calls,
            *[
                min(getattr(self, one), getattr(other, one))
                for one in ("resumed", "switches", "imported")
            ],
        )

    def row(self) -> str:
        """Return the line of the table."""
        folders = {file.split("/")[0] for file in self.files}
        figures = (sum(self.calls.values()), self.resumed, len(self.calls), len(self.files))
        cells = [*figures, len(folders), self.switches, self.imported]
        return f"| {self.name} | {' | '.join(f'{one:,}' for one in cells)} |"


class Traced:
    """One traced proxy, with the moments at which its ways began and ended."""

    def __init__(self, installation: "Installation", output: Path) -> None:
        self.installation, self.output = installation, output
        installation.command = [sys.executable, __file__, "--traced"]
        installation.variables[OUTPUT] = str(output)
        self.spans: list[tuple[str, float, float]] = []

    @contextmanager
    def way(self, name: str, quiet: float = QUIET) -> Iterator[None]:
        """Note when a way begins and ends."""
        start = time.monotonic()
        yield
        time.sleep(quiet)
        self.spans.append((name, start, time.monotonic()))
        time.sleep(QUIET)

    def ways(self) -> Iterator[Way]:
        """Read what the ways called, once the proxy has ended. Equal names are one way."""
        known: dict[str, Way] = {}
        for way in self._each():
            known[way.name] = known[way.name].common(way) if way.name in known else way
        yield from known.values()

    def _each(self) -> Iterator[Way]:
        rows, imported = orjson.loads(self.output.read_bytes())
        for name, start, end in self.spans:
            found = Way(name)
            last = ""
            for at, file, function, is_new in rows:
                if not start <= at <= end:
                    continue
                if is_new:
                    found.calls[file, function] += 1
                else:
                    found.resumed += 1
                found.switches += file != last
                last = file
            found.imported = sum(at <= end for at, _ in imported)
            yield found


def plain(root: Path) -> Iterator[Way]:
    """The ways of a default installation."""
    from tests.e2e.installation import PLAIN, Installation  # noqa: PLC0415  the traced process imports none of it
    from tests.e2e.mailbox_person import Person  # noqa: PLC0415  the traced process imports none of it

    installation = Installation(root)
    roles = {tool: names for tool, names in PLAIN.items() if tool != "forbidden"}
    installation.add_scripted("scripted", roles)
    installation.allow_scripted()
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    traced = Traced(installation, root / "trace")
    start = time.monotonic()
    agent = installation.start()
    traced.spans.append(("start to `initialize` answered", start, time.monotonic()))
    agent.until_listed("answer")
    time.sleep(QUIET)
    with traced.way("allowed call, first"):
        agent.call("answer", {"text": "x"})
    for number in range(REPEATED):
        with traced.way("allowed call, later", SHORT):
            agent.call("answer", {"text": f"y{number}"})
    for _ in range(REPEATED):
        with traced.way("refused (no annotation)", SHORT):
            agent.call("forbidden", {})
    with traced.way("escalated, approved by file"):
        call = agent.start_call("ask", {"text": "x"})
        person.until_asked()
        person.answer({"decision": "approved"})
        agent.result(call)
    installation.end()
    yield from traced.ways()


def engine(root: Path) -> Iterator[Way]:
    """The ways of an installation with the auto-confirm engine."""
    from tests.e2e.installation import Installation  # noqa: PLC0415  the traced process imports none of it
    from tests.e2e.test_auto_confirm import Office  # noqa: PLC0415  the traced process imports none of it

    office = Office(Installation(root))
    traced = Traced(office.installation, root / "trace")
    start = time.monotonic()
    agent = office.start()
    traced.spans.append(("start, engine on", start, time.monotonic()))
    agent.until_listed("write_file")
    time.sleep(QUIET)
    agent.call("write_file", {"path": "/tmp/ironcurtain-trace/w"})  # noqa: S108  never written
    time.sleep(QUIET)
    with traced.way("engine approves"):
        agent.call("write_file", {"path": "/tmp/ironcurtain-trace/x"})  # noqa: S108
    office.installation.end()
    yield from traced.ways()


def options_given() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, default=0, help="functions to name for each way")
    parser.add_argument("--files", action="store_true", help="name the files of each way")
    parser.add_argument("--modules", action="store_true", help="name the imported modules")
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = options_given()
    if options.traced:
        traced()
    sys.path.insert(0, str(ROOT))
    say("| way | calls | resumed | functions | files | folders | changes of file | imported |")
    say("|---|---|---|---|---|---|---|---|")
    runs: list[Callable[[Path], Iterator[Way]]] = [plain, engine]
    ways: list[Way] = []
    imported: list[tuple[float, str]] = []
    for run in runs:
        with tempfile.TemporaryDirectory() as scratch:
            for way in run(Path(scratch)):
                say(way.row())
                ways.append(way)
            if options.modules and run is plain:
                _, imported = orjson.loads((Path(scratch) / "trace").read_bytes())
    for way in ways:
        explain(way, options.most, files=options.files)
    if options.modules:
        say("\n".join(["\nimported", *[f"  {name}" for _, name in imported]]))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def explain(way: Way, most: int, *, files: bool) -> None:
    """Print the functions that a way calls most often, and its files."""
    if most or files:
        say(f"\n{way.name}")
    for (file, function), count in way.calls.most_common(most):
        say(f"  {count:5} {file} {function}")
    if files:
        say("\n".join([f"  {file}" for file in way.files]))


if __name__ == "__main__":
    main()
