"""The files that `init` writes below `~/.ironcurtain`. Not a command itself."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orjson

from ironcurtain_proxy.config.annotating.read_tool import ReadServer
from ironcurtain_proxy.config.clients.undo_record import digest
from ironcurtain_proxy.config.policy.policy_files import ANNOTATIONS_NAME, POLICY_NAME
from ironcurtain_proxy.config.presets.compose import compose
from ironcurtain_proxy.config.presets.preset import Preset
from ironcurtain_proxy.config.presets.writing import PlannedFile, planned, write
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.reading.reading import MAX_BYTES
from ironcurtain_proxy.config.servers.server_choice import SERVERS_NAME
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.own_process.clocks import SystemClock

NAMES = (f"generated/{POLICY_NAME}", f"generated/{ANNOTATIONS_NAME}", SERVERS_NAME, CONFIG_NAME)
"""The files in the order in which they are written: without the configuration, none has an effect.
"""


def planned_files(
    state: Path,
    preset: Preset,
    servers: Sequence[ReadServer],
    entries: Mapping[str, Json],
    workspace: Path,
) -> list[PlannedFile]:
    """The files that `init` will write.

    Raises:
        ConfigurationError: there is too much to write, or what is there cannot be read.
    """
    documents = compose(preset, servers, str(workspace))
    if len(orjson.dumps(documents.annotations)) > MAX_BYTES // 2:
        raise ConfigurationError("the servers list so many tools that no file holds them all")
    contents = (documents.policy, documents.annotations, {**entries}, documents.config)
    try:
        return [planned(state / name, one) for name, one in zip(NAMES, contents, strict=True)]
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from None


def write_files(
    files: Sequence[PlannedFile],
    say: Callable[[str], None],
    *,
    force: bool,
    own: Mapping[str, str] | None = None,
) -> bool:
    """Write the files. False: an existing file has other content, and nothing was written.

    Args:
        files: to be written.
        say: prints a line.
        force: whether files with other content are replaced.
        own: the SHA-256 of each file as `init` wrote it. An unchanged file may be replaced.

    Raises:
        ConfigurationError: a file cannot be written.
    """
    own = own or {}
    others = [file for file in files if file.state == "other" and not _is_own(file, own)]
    if others and not force:
        for file in others:
            say(f"{file.path}: exists with other content and is not changed")
        say("nothing was written: --force replaces these files and keeps them beside the new ones")
        return False
    kept = [file for file in files if file.state == "elsewhere" and not force]
    for file in kept:
        say(f"{file.path}: names another workspace and is not changed. For this workspace, set "
            "ALLOWED_DIRECTORY where your client starts the proxy")  # fmt: skip
    todo = [file for file in files if file not in kept and file.state != "same"]
    try:
        for file, backup in write(todo, SystemClock().now()):
            say(f"{file.path}: written" + (f"; as it was: {backup.name}" if backup else ""))
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be written: {error.strerror}") from None
    if not todo and not kept:
        say("everything is there already")
    return True


def _is_own(file: PlannedFile, own: Mapping[str, str]) -> bool:
    known = next(
        (own[name] for name in NAMES if str(file.path).endswith(f"/{name}") and name in own), ""
    )
    return file.before is not None and digest(file.before) == known


def digests(files: Sequence[PlannedFile], before: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of each file that `init` wrote, by name."""
    found = dict(before)
    for name, file in zip(NAMES, files, strict=True):
        if file.state != "elsewhere":
            found[name] = digest(file.content)
    return found
