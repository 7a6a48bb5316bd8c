"""The tools of our own shell: their descriptions, and their arguments."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_shell.running import Ended
from ironcurtain_proxy.transactions.changes import Changes, KeptBack

SECONDS: Final = 120
MOST_SECONDS: Final = 280
"""The proxy gives up after 300 seconds."""
_MOST_INPUT: Final = 4 << 20
_MOST_SAID: Final = 20
_BASH: Final = "/bin/bash"

TOOLS: Final[Sequence[Mapping[str, Json]]] = orjson.loads(
    Path(__file__).with_suffix(".json").read_bytes()
)
"""As objects of `tools/list`. They name both numbers above."""


class WrongArgumentError(Exception):
    """Raised for arguments that do not fit. The message is for the agent."""


class RunArguments(Struct, frozen=True, kw_only=True):
    """The arguments of `run_command`."""

    command: str
    directory: str
    seconds: int
    input: bytes
    is_job: bool

    @property
    def words(self) -> Sequence[str]:
        """The command line."""
        return (_BASH, "-c", self.command)


def run_arguments(given: Mapping[str, Json], workspace: str) -> RunArguments:
    """Read the arguments of `run_command`.

    Raises:
        WrongArgumentError: they do not fit.
    """
    command, directory = given.get("command"), given.get("workdir", ".")
    text, is_job = given.get("input", ""), given.get("background", False)
    if not isinstance(command, str) or "\0" in command:
        raise WrongArgumentError("command must be a text without NUL")
    if not isinstance(directory, str) or "\0" in directory:
        raise WrongArgumentError("workdir must be a path")
    if not isinstance(text, str) or len(text) > _MOST_INPUT:
        raise WrongArgumentError(f"input must be a text of at most {_MOST_INPUT:,} characters")
    if not isinstance(is_job, bool):
        raise WrongArgumentError("background must be true or false")
    place = os.path.join(workspace, directory)  # noqa: PTH118  an absolute one stays
    if not os.path.isdir(place):  # noqa: PTH112  a string is wanted
        raise WrongArgumentError(f"there is no directory {directory}")
    return RunArguments(
        command=command,
        directory=os.path.realpath(place),
        seconds=whole(given, "timeoutSeconds", SECONDS, 1),
        input=text.encode(errors="surrogatepass"),
        is_job=is_job,
    )


def whole(given: Mapping[str, Json], name: str, standard: int, least: int) -> int:
    """Read a number of seconds.

    Raises:
        WrongArgumentError: it is none, or out of range.
    """
    value = given.get(name, standard)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not isinstance(value, int) or not least <= value <= MOST_SECONDS:
        raise WrongArgumentError(f"{name} must be a whole number from {least} to {MOST_SECONDS}")
    return value


_LINKED_ANEW: Final = "fatal: hardlink different from source"
"""To an ordinary user a file of a view seems to be another one once it has a second name."""


def text_of(output: str, ended: Ended) -> str:
    """Return what the agent reads of a command that has ended."""
    lines = [output] if output else []
    if ended.why:
        lines.append(f"[{ended.why}]")
    if ended.status:
        lines.append(f"[exit status {ended.status}]")
        if _LINKED_ANEW in output:
            lines.append("[git clone: use --no-hardlinks here]")
    if ended.changes is not None:
        lines += _notes(ended.changes)
    return "\n".join([line.removesuffix("\n") for line in lines]) or "[no output]"


def _notes(changes: Changes) -> list[str]:
    """Return what did not come into the workspace, a line for each kind."""
    lines: list[str] = []
    if changes.kept_back:
        lines.append(
            f"[KEPT BACK, not changed in the workspace: {said(changes.kept_back)}. "
            "The same call made again is asked about.]"
        )
    if changes.conflicts:
        lines.append(f"[CONFLICT, left as it is: {said(changes.conflicts)}]")
    if changes.left_out:
        lines.append(f"[LEFT OUT: {said(changes.left_out)}]")
    return lines


def said(notes: Sequence[KeptBack]) -> str:
    """Return paths and reasons in one line."""
    named = [
        f"{os.fsdecode(one.path).encode('utf-8', 'backslashreplace').decode()!r} ({one.why})"
        for one in notes[:_MOST_SAID]
    ]
    more = f" and {len(notes) - _MOST_SAID} more" if len(notes) > _MOST_SAID else ""
    return ", ".join(named) + more
