"""The working directory of a git server, from earlier calls.

The tools of a git server take `path` as optional once a directory was set; the policy must
see which one it will be, so it is written into the call before it is judged.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.json import Arguments

NO_WORKING_DIRECTORY: Final = (
    "Git server has no working directory set. Call git_set_working_dir first."
)

_SETS_DIRECTORY: Final[Mapping[str, str]] = MappingProxyType(
    {"git_set_working_dir": "path", "git_clone": "localPath"}
)
"""Tools after which their server works in another directory, by the argument that names it."""

_SHOWN_AS: Final = "Working directory"


class ServerContexts:
    """The working directory of each server of one session."""

    def __init__(self) -> None:
        """Begin without directories."""
        self._directories: dict[str, str] = {}

    def note(self, server: str, tool: str, arguments: Arguments) -> None:
        """Note a call that was carried out, with the sent arguments."""
        argument = _SETS_DIRECTORY.get(tool)
        directory = arguments.get(argument) if argument is not None else None
        if isinstance(directory, str) and directory.startswith("/"):
            self._directories[server] = directory

    def of(self, server: str) -> tuple[tuple[str, str], ...]:
        """The server's context for a reviewer."""
        directory = self._directories.get(server)
        return () if directory is None else ((_SHOWN_AS, directory),)

    def completed(self, server: str, arguments: Arguments) -> Arguments | None:
        """The arguments with the working directory as their `path`, or None if none is known."""
        directory = self._directories.get(server)
        return None if directory is None else {**arguments, "path": directory}


def lacks_path(annotation: ToolAnnotation, arguments: Arguments) -> bool:
    """Whether the tool takes a `path` and the call has no usable one."""
    if "path" not in annotation.arguments:
        return False
    path = arguments.get("path")
    return not isinstance(path, str) or not path.strip()
