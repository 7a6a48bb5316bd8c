"""Reviewing processes, started for real: under the guardian that ends servers, too."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ironcurtain_proxy.auto_confirm.reviewers.process import (
    ProcessReviewer,
    ProcessSpec,
    ReviewerProcess,
    Start,
    redact,
)
from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.process import ServerProcess, StderrDrain, spawn
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.ports import Clock
from tests.mailbox.mailbox_fixture import CLOCK

ROOT = Path(__file__).parents[3]


@dataclass
class Guarded:
    process: ServerProcess
    drain: StderrDrain

    def take_wire(self) -> tuple[int, int]:
        return self.process.take_wire()

    def end(self, grace: float) -> int:
        status = self.process.end(grace)
        self.drain.join(1.0)
        return status


@dataclass
class Launcher:
    """Starts processes and keeps what each was started with."""

    log: SessionLog = field(default_factory=SessionLog)
    starts: list[Start] = field(default_factory=list)
    running: list[ServerProcess] = field(default_factory=list)

    def __call__(self, start: Start) -> ReviewerProcess:
        self.starts.append(start)
        process = spawn(
            ServerSpec(name=start.name, annotations="", command=start.argv[0]),
            environment=start.environment,
            cwd=str(ROOT),
            argv=start.argv,
            inherited=start.inherited,
        )
        self.running.append(process)
        drain = StderrDrain(
            start.name, process.take_stderr(), Masker(start.secrets), self.log, OutputLimit()
        )
        return Guarded(process, drain)


def manager(program: str, *arguments: object, name: str = "architect_manager") -> ProcessSpec:
    module = f"tests.auto_confirm.reviewers.managers.{program}"
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-m", module, *map(str, arguments)),
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )


@asynccontextmanager
async def reviewing(
    spec: ProcessSpec,
    launcher: Launcher | None = None,
    clock: Clock = CLOCK,
    on_given_up: Callable[[str], None] | None = None,
) -> AsyncIterator[ProcessReviewer]:
    """A reviewer at work."""
    reviewer = ProcessReviewer(
        spec,
        clock=clock,
        launch=launcher or Launcher(),
        redact=redact,
        environ=os.environ,
        on_given_up=on_given_up,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(reviewer.run)
        yield reviewer
        tasks.cancel_scope.cancel()
