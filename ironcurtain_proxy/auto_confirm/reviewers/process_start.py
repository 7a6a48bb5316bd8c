"""What a process that reviews is started with: its command, its environment, its token.

Knows what the process gets; does not know how a process is started and ended. That it and all it
has started end with the proxy, however that ends, and where its standard error goes, is for whoever
starts it (`Launch`).

The token goes through a pipe of its own. Not by the environment: any process of the same user can
read that for as long as the process lives, and everything the process starts inherits it.
Not by standard input either: what comes there a reviewer shows to its model.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ironcurtain_proxy.auto_confirm.reviewers.dialect import MakeDialect
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import LineDialect
from ironcurtain_proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_FD: Final = "IRONCURTAIN_REVIEWER_TOKEN_FD"  # noqa: S105  a variable's name
"""The variable with the number of the descriptor from which the token is read, to its end."""

REVIEWER_NAME: Final = "IRONCURTAIN_REVIEWER_NAME"

BASE: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TERM", "SHELL", "TMPDIR"}
)
"""What every process may know, besides the `LC_*` variables."""

_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A reviewer that is a process, as the operator names it."""

    name: str
    command: tuple[str, ...]
    """A program and its arguments. No shell."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the base. May hold secrets, such as a model's key."""
    session: str | None = None
    """The session that it reviews from; None: its name."""
    may_deny: bool = True
    dialect: MakeDialect = LineDialect
    """How it is spoken to."""
    ready_seconds: float = 30.0
    """How long it may take until it can be asked."""
    at_once: int = 16
    """Reviews that it is given at the same time."""
    restarts: int = 5
    """How often it is started again after it has ended."""

    def __post_init__(self) -> None:
        if not self.command or not all(self.command[:1]) or "\0" in "".join(self.command):
            raise ConfigurationError(f"reviewer {self.name!r} has no command")
        if not self.name or not self.name.isprintable():
            raise ConfigurationError("a reviewer has no name that can be shown")
        if self.at_once < 1 or self.restarts < 0:
            raise ConfigurationError(f"reviewer {self.name!r}: a number is too small")

    @property
    def party(self) -> str:
        """The session that it reviews from."""
        return self.session or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """All that is needed to start it."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    """All it finds in its environment."""
    inherited: tuple[int, ...]
    """Descriptors that it gets under the same numbers. Theirs is not to close."""
    secrets: tuple[str, ...] = field(repr=False)
    """What must not be written to a log, should the process print it."""


class ReviewerProcess(Protocol):
    """A process that runs."""

    def take_wire(self) -> tuple[int, int]:
        """Hand over the descriptors of its output, to read, and of its input, to write."""
        ...

    def end(self, grace: float) -> int:
        """End it and all it has started, and wait until that is done. Blocks.

        Args:
            grace: seconds it has to end by itself.
        """
        ...


ReviewerLaunch: TypeAlias = Callable[[Start], ReviewerProcess]
"""Starts a process, in a thread. Raises `IronCurtainError` or `OSError` if it cannot.

INVARIANT: what it starts ends with the proxy, however the proxy ends.
"""


def new_token() -> str:
    """A token for one process."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


@contextmanager
def prepared(spec: ProcessSpec, token: str, parent: Mapping[str, str]) -> "Iterator[Start]":
    """What a process is started with. The descriptors in it are open until the block ends.

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
