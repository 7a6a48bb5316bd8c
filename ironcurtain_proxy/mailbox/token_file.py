"""A reviewer's token, in a file of its own: one line, for this user alone.

The same file is named to the proxy, by its configuration, and to whoever answers.
"""

import re
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import read_private

SHORTEST: Final = 32
LONGEST: Final = 4096
"""The most characters, and bytes, of a token."""

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")
_LINE_END: Final = 2


def read_token(path: Path) -> str:
    """Read the token.

    Raises:
        ConfigurationError: it is not there, or cannot be trusted; the message names the file and
            holds nothing of what is in it.
    """
    raw = read_private(path, LONGEST + _LINE_END + 1, "token file")
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not SHORTEST <= len(line) <= LONGEST or _TOKEN.fullmatch(line) is None:
        raise ConfigurationError(
            _unusable(
                path, f"is not one line of {SHORTEST} to {LONGEST} visible characters of ASCII"
            )
        )
    return line.decode("ascii")


def _unusable(path: Path, what: str) -> str:
    return f"token file {path} {what}"
