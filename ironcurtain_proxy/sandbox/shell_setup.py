"""What the proxy hands to the process of our own shell, in a sealed file in memory."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.hidden_credentials import Credentials
from ironcurtain_proxy.sandbox.private_tmp import PrivateTmp
from ironcurtain_proxy.sandbox.profile import SandboxProfile

META: Final = "ironcurtain/view"
"""The key of a result's `_meta` that is for the proxy alone."""


class Views(Struct, frozen=True, kw_only=True):
    """Where the commands of our own shell have their views."""

    directory: str
    """The directory of the session's views; empty: commands run as the shell's process does, which
    has restrictions of its own or none."""
    workspace: str
    approved: tuple[str, ...] = ()
    """Control places that these commands may change, relative to the workspace."""
    names: str = ""
    """The file of the hidden names that a person has approved; see `settled_names`."""
    wire: str = ""
    """The socket at which a command of a client's own shell is fetched; empty: the arguments of a
    call are all of it."""


class ShellSetup(Struct, frozen=True, kw_only=True):
    """How commands are run."""

    views: Views
    profile: SandboxProfile = SandboxProfile()
    private: PrivateTmp | None = None
    srt: tuple[str, ...] = ()
    """Runs srt, for commands that may reach hosts."""
    credentials: Credentials | None = None
    """The user's credentials that stay hidden, also what appears while the shell runs."""


class ClientCommand(Struct, frozen=True, kw_only=True):
    """A command of a client's own shell, as the kernel hands it to the process that runs it.

    The three standard descriptors come beside it.
    """

    shell: str
    """The shell of the client, absolute."""
    text: bytes
    """What that shell is told to run: the judged command, in the client's own words around it."""
    directory_file: bytes
    """The file in the text into which the shell writes its last directory."""
    variables: list[bytes]
    """The environment, each `NAME=VALUE`."""


class ClientCommandEnd(Struct, frozen=True, kw_only=True):
    """How such a command ended."""

    status: int
    """The exit status; -1: nobody knows, or it could not be started."""
    directory: bytes = b""
    """The last directory of its shell; empty: it did not say."""


def call_digest(arguments: Mapping[str, Json]) -> str:
    """Return what the command of an authorized call is fetched by: its arguments, as judged."""
    return hashlib.sha256(msgspec.json.encode(arguments, order="sorted")).hexdigest()


class ViewReport(Struct, frozen=True, kw_only=True):
    """What the proxy learns of a command beside its output."""

    view: str = ""
    """The name of the view whose changes are prepared; empty: there are none."""
    refused_host: str = ""
    """The first host that the command tried to reach; empty: none."""


def encoded(setup: ShellSetup) -> bytes:
    """Return a setup as `read_setup` reads it."""
    return msgspec.json.encode(setup)


def with_report(result: ToolResult) -> tuple[ToolResult, str]:
    """Return an answer of our own shell as the agent may see it, and the host that was refused."""
    meta = None if result.result is None else result.result.get("_meta")
    said = meta.get(META) if isinstance(meta, Mapping) else None
    if result.result is None or not isinstance(meta, Mapping) or said is None:
        return result, ""
    report = msgspec.convert(said, ViewReport)
    rest = {name: value for name, value in meta.items() if name != META}
    answer = {name: value for name, value in result.result.items() if name != "_meta"}
    if rest:
        answer["_meta"] = rest
    return ToolResult(result=answer, view=report.view), report.refused_host


def read_setup(descriptor: int) -> ShellSetup:
    """Read the setup from a descriptor.

    Raises:
        OSError, msgspec.MsgspecError: it cannot be read.
    """
    content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
    return msgspec.json.decode(content, type=ShellSetup)


def plain(workspace: str | None) -> ShellSetup:
    """Return the setup of a process that has its restrictions around itself, or none."""
    place = workspace or os.getcwd()  # noqa: PTH109  a string is wanted
    return ShellSetup(views=Views(directory="", workspace=place))
