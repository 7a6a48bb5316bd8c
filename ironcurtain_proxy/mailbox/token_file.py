"""A reviewer's token, in a file of its own: one line, for this user alone.

The same file is named to the proxy, by its configuration, and to whoever answers.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError

SHORTEST: Final = 32
LONGEST: Final = 4096
"""Characters, and bytes."""

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")
_LINE_END: Final = 2
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_token(path: Path) -> str:
    """Read it.

    Raises:
        ConfigurationError: it is not there, or cannot be trusted; the message names the file and
            holds nothing of what is in it.
    """
    raw = read_private(path, LONGEST + _LINE_END + 1)
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not SHORTEST <= len(line) <= LONGEST or _TOKEN.fullmatch(line) is None:
        raise ConfigurationError(
            _unusable(
                path, f"is not one line of {SHORTEST} to {LONGEST} visible characters of ASCII"
            )
        )
    return line.decode("ascii")


def read_private(path: Path, most: int) -> bytes:
    """Read the beginning of a file that no other user can read or write.

    Args:
        path: the file.
        most: bytes.

    Raises:
        ConfigurationError: it is not there, or cannot be trusted.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise ConfigurationError(_unusable(path, _why_not_opened(error))) from None
    try:
        problem = _problem(os.fstat(descriptor))
        if problem:
            raise ConfigurationError(_unusable(path, problem))
        return os.read(descriptor, most)
    except OSError as error:
        raise ConfigurationError(_unusable(path, f"cannot be read: {error.strerror}")) from None
    finally:
        os.close(descriptor)


def _problem(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if found.st_mode & _OTHERS:
        return "can be used by others: run `chmod 600` on it"
    return ""


def _why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "is a symbolic link"
    return f"cannot be read: {error.strerror}"


def _unusable(path: Path, what: str) -> str:
    return f"token file {path} {what}"
