"""A directory for the sockets of one sandbox: made before it, removed after it.

srt puts its sockets into TMPDIR, and leaves them there when it is killed. A socket's path holds 107
bytes at most, and socat takes a comma or a colon in it for something of its own: where TMPDIR is
too long or too odd, srt could not start.
"""

import os
import re
import shutil
import tempfile
from typing import Final

_SHORT: Final = "/tmp"  # noqa: S108  where everything fits
_PREFIX: Final = "srt-"
_LONGEST: Final = 107 - len(f"/{_PREFIX}01234567") - len("/claude-http-0123456789abcdef.sock")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+", re.ASCII)


def make_directory() -> str:
    """A new directory, for this user only.

    Raises:
        OSError: none can be made.
    """
    base = os.path.realpath(tempfile.gettempdir())
    fits = len(base) <= _LONGEST and _PLAIN.fullmatch(base) is not None
    return tempfile.mkdtemp(prefix=_PREFIX, dir=base if fits else _SHORT)


def remove_directory(directory: str) -> None:
    """Remove it with all that is in it. That it is gone already is no error."""
    shutil.rmtree(directory, ignore_errors=True)
