"""The tests of one collection, shared out to forks of the process that collected them.

    python -m pytest -q -p tests.workers --workers 4

All files of tests are read, rewritten and imported once, which is 6 s of a core, and 14 s in a new
clone; pytest-xdist does it in each of its workers. A fork runs a file whole, so what a module's
fixtures make is made once. Files with the same `worker` mark are run by one fork, as if they were
one file: what they share is started or imported once.
"""

import gc
import multiprocessing
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from _pytest import tmpdir
from _pytest.capture import CaptureManager
from _pytest.runner import runtestprotocol
from hypothesis import given, settings
from hypothesis import strategies as st

Files: TypeAlias = deque[list[int]]
"""Of each file, or of several, where the tests stand among all that were collected."""

ASKING: Final = None
"""What a fork sends to be given a file. Else it sends the name of a test that begins, and a list
of the reports of one that has ended."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="forks that share the tests, by file")


def pytest_configure(config: pytest.Config) -> None:
    if workers := config.getoption("workers"):
        gc.disable()  # what is collected stays, and to look through it is a sixth of the time
        config.pluginmanager.register(Sharing(workers))


class Sharing:
    """Hands out the files in their order, and reports what the forks say of their tests."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._forks: dict[Connection, ForkProcess] = {}
        self._running: dict[Connection, str] = {}
        """The tests that have begun and not ended."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests, unless some could not be collected or they are only to be listed."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        files = _files(session.items)
        self._start(session, min(self._workers, len(files)))
        while self._forks:
            for pipe in wait([*self._forks]):
                assert isinstance(pipe, Connection)
                self._take(session, pipe, files)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _start(self, session: pytest.Session, count: int) -> None:
        _try_a_property()
        gc.collect()
        gc.freeze()  # a fork that collects would otherwise copy all that is there
        # Each fork has a folder of its own: pytest reads a whole one to make the next in it.
        folders = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        context = multiprocessing.get_context("fork")
        for number in range(count):
            folder = folders / f"fork{number}"
            folder.mkdir(mode=0o700)
            ours, theirs = context.Pipe()
            to_close = [*self._forks, ours]
            fork = context.Process(target=_work, args=(session, theirs, folder, to_close))
            fork.start()
            theirs.close()
            self._forks[ours] = fork

    def _take(self, session: pytest.Session, pipe: Connection, files: Files) -> None:
        """Take one message of a fork, or its end."""
        hook = session.config.hook
        try:
            message = pipe.recv()
        except EOFError:
            fork = self._forks.pop(pipe)
            fork.join()
            if (running := self._running.get(pipe)) or fork.exitcode:
                session.shouldfail = (
                    f"a worker ended with {fork.exitcode} in {running or 'no test'}"
                )
            return
        if message is ASKING:
            pipe.send([] if session.shouldfail or not files else files.popleft())
        elif isinstance(message, str):
            self._running[pipe] = message
        else:
            del self._running[pipe]
            for json in message:
                report = hook.pytest_report_from_serializable(config=session.config, data=json)
                hook.pytest_runtest_logreport(report=report)


@settings(max_examples=1, database=None)
@given(st.text())
def _try_a_property(_: str) -> None:
    """Let hypothesis read the constants of all that is imported, which each fork would do."""


def _files(items: Sequence[pytest.Item]) -> Files:
    """What is handed out together. The files that one fork runs take longest, and come first."""
    marked: dict[str, list[int]] = {}
    by_file: dict[Path, list[int]] = {}
    for index, item in enumerate(items):
        if mark := item.get_closest_marker("worker"):
            marked.setdefault(mark.args[0], []).append(index)
        else:
            by_file.setdefault(item.path, []).append(index)
    return deque([*marked.values(), *by_file.values()])


class Sending:
    """Runs a test as pytest does, and sends what there is to report."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Take the place of pytest's own, which would print."""
        self._pipe.send(item.nodeid)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        to_json = item.config.hook.pytest_report_to_serializable
        self._pipe.send([to_json(config=item.config, report=report) for report in reports])
        return True


def _work(
    session: pytest.Session, pipe: Connection, folder: Path, to_close: list[Connection]
) -> None:
    """In a fork: run files until there are no more."""
    gc.set_threshold(20_000, 20, 20)  # the usual one looks for garbage a twentieth of the time
    gc.enable()
    for other in to_close:
        other.close()
    config = session.config
    config.pluginmanager.register(Sending(pipe))
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    # A link to the newest folder of each name, anew for each test, costs as much as the folder.
    tmpdir._force_symlink = lambda *_: None  # type: ignore[attr-defined]
    capture = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    # What a test prints goes into a file, which all forks would share. The old one stays open: it
    # is the standard error that default arguments of imported functions have kept.
    capture.suspend_global_capture(in_=True)
    kept, capture._global_capturing = capture._global_capturing, None
    capture.start_global_capturing()
    capture.suspend_global_capture()
    file = _next_file(pipe)
    while file:
        items = [session.items[index] for index in file]
        for item, nextitem in pairwise(items):
            config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        # Which fixtures end with the last test depends on the test that follows it.
        file = _next_file(pipe)
        following = session.items[file[0]] if file else None
        config.hook.pytest_runtest_protocol(item=items[-1], nextitem=following)
    assert kept is not None


def _next_file(pipe: Connection) -> list[int]:
    """Where the tests of the next file stand; none, if there is no file left."""
    pipe.send(ASKING)
    file: list[int] = pipe.recv()
    return file
