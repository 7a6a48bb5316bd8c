"""Passwords and tokens in the configuration of a repository."""

import os
import re
import stat
from typing import Final

from ironcurtain_proxy.facts.branches import shared_directory
from ironcurtain_proxy.model.path import RealPath

_LARGEST: Final = 1 << 20
_CREDENTIALS: Final = re.compile(
    # A password in a URL, a token in the place of the user, a header that a server asks for.
    rb"://[^\s/@:\"]*:[^\s/@\"]+@"
    rb"|://(?:gh[a-z]_|github_pat_|glpat-|x-token|[A-Za-z0-9_-]{30,})[^\s/@\"]*@"
    rb"|extraheader\s*=.*(?:authorization|token|cookie)",
    re.IGNORECASE,
)


def shows_credentials(directory: str) -> bool:
    """Whether git's own configuration of a repository holds a password or a token.

    A configuration that cannot be read counts as one that does.

    Args:
        directory: real, absolute; what holds `.git`.
    """
    try:
        top = RealPath.from_text(directory)
        shared = shared_directory(top)
    except (OSError, ValueError):
        return False
    names = (f"{shared}/config", f"{directory}/.git/config.worktree")
    return any(map(_holds_credentials, names))


def _holds_credentials(path: str) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        text = os.read(file, _LARGEST + 1) if is_file else b""
        return len(text) > _LARGEST or _CREDENTIALS.search(text) is not None
    except OSError:
        return True
    finally:
        os.close(file)
