"""How clients read the paths of their calls.

What is judged must be what the client opens. A path that it may read in another way than the table
of tools does is refused, with the words for the agent to write it plainly. Tried with the real
clients: only Claude Code takes `~` for the home, Gemini CLI decodes `%2e` and looks for a file that
is not there in other directories, and Copilot CLI and opencode follow a link before `..`. Copilot
CLI searches each word of a path that is not there, and opencode takes a backslash for `/`.
"""

import os
import posixpath
import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.values import Arguments

_NAMES: Final = ("file_path", "notebook_path", "path", "cwd")
"""The arguments of the common table that are paths."""

_LONGEST: Final = 4096
"""The most bytes of a path that the machine takes."""
ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}|^file:")


class PathForm(Struct, frozen=True, kw_only=True):
    """What a client makes of a path besides what the machine does."""

    has_home: bool = False
    """Whether `~` and `~/x` are in the home."""
    decoded: re.Pattern[str] | None = None
    """What it replaces by another text."""
    sought: Callable[[str, str], bool] = lambda _tool, _path: False
    """Whether it takes another file where none is there, by the tool's name in the common table."""

    def is_unclear(self, tool: str, given: Arguments, here: str) -> bool:
        """Return whether a path of a call may lead elsewhere than it says.

        Args:
            tool: the name in the common table.
            given: the arguments, by the names of that table.
            here: the directory of the call, absolute.
        """
        texts = [given[name] for name in _NAMES if name in given]
        return any(isinstance(one, str) and self._is_odd(tool, one, here) for one in texts)

    def _is_odd(self, tool: str, text: str, here: str) -> bool:
        is_in_home = text == "~" or text.startswith("~/")
        # Nobody opens a longer one, and to look for each of its parts would take long.
        is_endless = len(text) > _LONGEST
        if is_endless or "\0" in text or (is_in_home and not self.has_home):
            return True
        if self.decoded is not None and self.decoded.search(text):
            return True
        place = posixpath.join(here, text)
        if self.sought(tool, text) and not os.path.exists(place):  # noqa: PTH110  never raises
            return True
        # Some take away what stands before `..`, and others go through it.
        through = ".." in text.split("/") and not is_in_home
        return through and os.path.realpath(place) != os.path.realpath(posixpath.normpath(place))
