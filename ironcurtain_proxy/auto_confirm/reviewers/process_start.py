"""The start of a reviewer process: its command, its environment, its token.

`Launch` starts and ends the process, with its descendants and its standard error.

The token goes through a separate pipe. The environment of a process is readable for all processes
of the user, and its children inherit it. Standard input is shown to the reviewer's model.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ironcurtain_proxy.auto_confirm.reviewers.json_lines import LineDialect, MakeDialect
from ironcurtain_proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
from collections import defaultdict
from pathlib import Path

import orjson

from ironcurtain_proxy.audit.bounding import shape_arguments
from ironcurtain_proxy.auto_confirm.briefing import Redacted
from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.process import ServerProcess, StderrDrain, spawn
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json

TOKEN_FD: Final = "IRONCURTAIN_REVIEWER_TOKEN_FD"  # noqa: S105  a variable's name
"""The variable with the number of the descriptor from which the token is read, to its end."""

REVIEWER_NAME: Final = "IRONCURTAIN_REVIEWER_NAME"

BASE: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TERM", "SHELL", "TMPDIR"}
)
"""The variables for every process, in addition to `LC_*`."""

_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A reviewer that is a process, as the operator names it."""

    name: str
    command: tuple[str, ...]
    """A program and its arguments. No shell."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the base. May hold secrets, such as a model's key."""
    dialect: MakeDialect = LineDialect
    """The protocol of the process."""
    ready_seconds: float = 30.0
    """Seconds until it must be ready."""
    at_once: int = 16
    """The most concurrent reviews."""
    restarts: int = 5
    """The number of restarts after the process has ended."""

    def __post_init__(self) -> None:
        if not self.command or not all(self.command[:1]) or "\0" in "".join(self.command):
            raise ConfigurationError(f"reviewer {self.name!r} has no command")
        if not self.name or not self.name.isprintable():
            raise ConfigurationError("a reviewer has no name that can be shown")
        if self.at_once < 1 or self.restarts < 0:
            raise ConfigurationError(f"reviewer {self.name!r}: a number is too small")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The arguments for its start."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    """All it finds in its environment."""
    inherited: tuple[int, ...]
    """Descriptors that it inherits under the same numbers; `prepared` closes them."""
    secrets: tuple[str, ...] = field(repr=False)
    """Values to mask in its output."""


class ReviewerProcess(Protocol):
    """A running process."""

    def take_wire(self) -> tuple[int, int]:
        """Hand over the descriptors of its output, to read, and of its input, to write."""

    def end(self, grace: float) -> int:
        """End it with all its descendants, and wait for the end. Blocks.

        Args:
            grace: seconds it has to end by itself.
        """


ReviewerLaunch: TypeAlias = Callable[[Start], ReviewerProcess]
"""Starts a process, in a thread. Raises `IronCurtainError` or `OSError` if it cannot.

INVARIANT: what it starts ends with the proxy, however the proxy ends.
"""


def new_token() -> str:
    """Return a token for one process."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


@contextmanager
def prepared(spec: ProcessSpec, token: str, parent: Mapping[str, str]) -> "Iterator[Start]":
    """Prepare a start. Its descriptors are open until the block ends.

    Args:
        spec: which process.
        token: its token.
        parent: the proxy's own environment.
    """
    read, write = os.pipe()
    try:
        try:
            os.write(write, token.encode())
        finally:
            os.close(write)
        yield Start(
            name=spec.name,
            argv=spec.command,
            environment=_environment(spec, parent) | {TOKEN_FD: str(read)},
            inherited=(read,),
            secrets=(token, *[value for value in spec.env.values() if len(value) > 3]),  # noqa: PLR2004  shorter is no secret
        )
    finally:
        os.close(read)


def _environment(spec: ProcessSpec, parent: Mapping[str, str]) -> dict[str, str]:
    base = {name: value for name, value in parent.items() if name in BASE or name.startswith("LC_")}
    return {**base, **spec.env, REVIEWER_NAME: spec.name}


def launcher(directory: Path, log: Path) -> ReviewerLaunch:
    """Return a starter of processes. What they print goes to the session log, secrets masked."""
    rations: defaultdict[str, OutputLimit] = defaultdict(OutputLimit)
    session_log = SessionLog(log)

    def launch(start: Start) -> ServerProcess:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = spawn(
            ServerSpec(name=f"reviewer {start.name}", annotations="", command=start.argv[0]),
            environment=start.environment,
            cwd=str(directory),
            argv=start.argv,
            inherited=start.inherited,
        )
        masker = Masker(list(start.secrets))
        name = f"reviewer {start.name}"
        StderrDrain(name, process.take_stderr(), masker, session_log, rations[name])
        return process

    return launch


def redact(arguments: Mapping[str, Json]) -> Redacted:
    """Return a call's arguments, redacted as in the audit log."""
    shaped = shape_arguments(arguments, redaction=True)
    fields: Json = orjson.loads(shaped.raw)
    if not isinstance(fields, dict):
        return Redacted({}, complete=False)
    return Redacted(fields, complete=shaped.size is None)
