"""Runs git in repositories that nobody vouches for.

A repository's configuration can name programs: hooks, filters, a file monitor, what fetches missing
objects. Only commands are run that start none of them: none that reads or writes files of the work
tree. Where a setting could matter all the same it is overridden from outside, and every way of
connecting is closed.

Even a command that only writes an index may look at files, to see whether they were changed while
it was written, and run their filters on them: so there are none to look at, but where their names
are asked for.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from ironcurtain_proxy.snapshots.faults import SafeguardError

_DEADLINE: Final = 30.0
"""Seconds for one command."""
_MAX_OUTPUT: Final = 16 << 20
_NOWHERE: Final = "/dev/no-work-tree"
_SETTINGS: Final = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.alternateRefsCommand", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.compression", "1"),
    ("core.pager", "cat"),
    ("core.splitIndex", "false"),
    ("core.untrackedCache", "false"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("protocol.allow", "never"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("fastimport.unpackLimit", "0"),
)
_IDENTITY: Final = ("ironcurtain-proxy", "ironcurtain-proxy@localhost")


class GitError(SafeguardError):
    """A command could not be run, failed, took too long or said too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPlace:
    """Which repository a command works on. Nothing is searched for."""

    git_dir: Path
    work_tree: Path | None = None
    """None: no file of a work tree is looked at, not even to see whether it was changed."""
    is_own: bool = False
    """It is a bare one that we made."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """More of the environment, such as another index."""


def git(arguments: Sequence[str], place: GitPlace, stdin: bytes = b"") -> bytes:
    """What one command prints.

    Raises:
        GitError: it did not end well.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
        given.write(stdin)
        given.seek(0)
        git_into(arguments, place, given, output)
        if output.seek(0, os.SEEK_END) > _MAX_OUTPUT:
            raise GitError("git said too much")
        output.seek(0)
        return output.read()


def git_into(
    arguments: Sequence[str], place: GitPlace, stdin: IO[bytes], output: IO[bytes]
) -> None:
    """Run one command from a file into a file.

    Raises:
        GitError: it did not end well.
    """
    program = shutil.which("git", path=os.environ.get("PATH", os.defpath))
    if program is None or not Path(program).is_absolute():
        # A relative one would be searched for in the repository.
        raise GitError("there is no git")
    try:
        ended = subprocess.run(  # noqa: S603  argument list, no shell
            (program, *arguments),
            cwd=place.work_tree or "/",
            env=_environment(place),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.DEVNULL,
            timeout=_DEADLINE,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise GitError("git could not be run, or took too long") from None
    if ended.returncode != 0:
        raise GitError(f"git {arguments[0]} failed")


def _environment(place: GitPlace) -> dict[str, str]:
    name, address = _IDENTITY
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "GIT_DIR": str(place.git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ASKPASS": "false",
        "GIT_PAGER": "cat",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        # A list of the allowed ones: none has this name. What is not held locally stays missing.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": address,
        **place.variables,
    }
    if not place.is_own:
        # Whatever `core.worktree` says.
        environment["GIT_WORK_TREE"] = str(place.work_tree or _NOWHERE)
    for count, (key, value) in enumerate(_SETTINGS):
        environment[f"GIT_CONFIG_KEY_{count}"] = key
        environment[f"GIT_CONFIG_VALUE_{count}"] = value
    environment["GIT_CONFIG_COUNT"] = str(len(_SETTINGS))
    return environment
