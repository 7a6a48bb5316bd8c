"""The hooks in clients' files: put in first, told apart from other people's, and taken out again.

What was there is kept whole in `~/.ironcurtain/clients/hooks-CLIENT.json`. If nobody changed the
file since, taking out restores it byte for byte; otherwise our entries alone are taken out.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct, json, structs

from ironcurtain_proxy.config.clients.text_format import (
    BYTE_ORDER_MARK,
    JsonText,
    NotUnderstoodError,
    rewritten,
)
from ironcurtain_proxy.config.presets import PRESETS, PresetName, compose, preset
from ironcurtain_proxy.config.reading.reading import is_there, read_text
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS, annotated_client_tools
from ironcurtain_proxy.hooks.events import GATES, HookClient, HookDialect, HookLine
from ironcurtain_proxy.hooks.kernel import VARIABLES
from ironcurtain_proxy.hooks.launching import HOME, hook_words, is_ours, prefix_file, prefix_text
from ironcurtain_proxy.hooks.places import (
    FileBefore,
    client_directory,
    directory_by,
    file_in,
    kept_file,
    read_kept,
)
from ironcurtain_proxy.mailbox.mailboxes import start_of
from ironcurtain_proxy.model.values import BootMoment, Json, list_of, object_of
from ironcurtain_proxy.private_files import (
    PRIVATE,
    make_private_directory,
    write_whole,
)
from ironcurtain_proxy.steady_clock import boot_id, seconds_since_boot

_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK")
"""The variables that a kernel starts with, as they are when the hooks are installed."""


def plugin_of(client: HookClient, file: Path) -> Path | None:
    """Return the program that a client loads, which reads the file with the command lines."""
    found = DIALECTS[client].plugin
    return None if found is None else file.parent / found[0]


class HookPlace(Struct, frozen=True, kw_only=True):
    """Where the hooks of one client go."""

    client: HookClient
    file: Path
    directory: Path
    """The client's own, which holds its user's file."""
    state: Path
    """The directory of the proxy's own files."""
    is_managed: bool = False
    """Whether it is an administrator's file, which holds for several users."""

    @property
    def starts_commands(self) -> bool:
        """Whether our shell prefix goes there, too. It lies in the user's own directory."""
        return self.dialect.prefix is not None and not self.is_managed

    @property
    def dialect(self) -> HookDialect:
        """The client's dialect."""
        return DIALECTS[self.client]

    @property
    def kept(self) -> Path:
        """The file that keeps what was there before."""
        return kept_file(self.state, f"{self.client}-managed" if self.is_managed else self.client)


def place_in(client: HookClient, home: Path, state: Path, managed: Path | None = None) -> HookPlace:
    """Return the place of a client's hooks: its user's own file, or an administrator's."""
    directory = client_directory(client, home, state, os.environ)
    file = file_in(client, directory) if managed is None else Path(os.path.realpath(managed))
    return HookPlace(
        client=client, file=file, directory=directory, state=state, is_managed=managed is not None
    )


def place_for(
    client: HookClient, home: Path, state: Path, managed: Path | None = None
) -> HookPlace:
    """Return where the hooks of a client are to go, by the variables of whoever installs them.

    Raises:
        ConfigurationError: they are elsewhere, where they would be forgotten.
    """
    place = place_in(client, home, state, managed)
    directory = directory_by(client, home, os.environ)
    file = file_in(client, directory)
    if place.is_managed or place.file == file:
        return place
    if is_ours(_text(place.file) or ""):
        raise ConfigurationError(
            f"our hooks of {client} are in {place.file}, and sessions started in this shell look "
            f"in {file}: change {place.dialect.places.moved_by[0]}, or take them out first, by "
            f"`ironcurtain-proxy hooks remove {client}`"
        )
    return structs.replace(place, file=file, directory=directory)


def install(place: HookPlace, *, observes: bool = False) -> Path:
    """Put our hooks first in a client's file, and keep what was there.

    Args:
        place: the file.
        observes: whether the hooks only record.

    Raises:
        ConfigurationError: the file is not what the client would read.
        OSError: it cannot be written.
    """
    file, known = place.file, _kept_of(place)
    before, written = _hooked(place, known, observes=observes)
    now = BootMoment(boot_id(), seconds_since_boot())
    kept = FileBefore(str(file), before, _digest(written), now, str(place.directory))
    make_private_directory(place.kept.parent)
    write_whole(place.kept, json.encode(kept))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(place, written)
    except OSError:
        if known is None:
            # Otherwise it would say that our hooks are in the file.
            place.kept.unlink()
        raise
    if place.dialect.plugin is not None:
        name, ours = place.dialect.plugin
        (file.parent / name).parent.mkdir(exist_ok=True)
        write_whole(file.parent / name, ours.read_bytes())
    return file


def _hooked(
    place: HookPlace, known: FileBefore | None, *, observes: bool
) -> tuple[str | None, bytes]:
    """Return what to restore later, and the file with our hooks."""
    file, before = place.file, _text(place.file)
    text = before
    document = {**place.dialect.document, **document_of(file, place.client)}
    hooks = document.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise ConfigurationError(f'{file}: "hooks" is no object')
    had_prefix = _take_prefix(document, place)
    if _without_ours(hooks) or had_prefix:
        if known is not None and before is not None and _digest(before.encode()) == known.digest:
            before = known.before
        else:
            # Somebody changed the file since. What is restored is that file, without our entries.
            before = _changed(before, document).decode()
    for event, entry in _entries(place, observes=observes).items():
        others = hooks.get(event, [])
        if not isinstance(others, list):
            raise ConfigurationError(f'{file}: "hooks.{event}" is no list')
        hooks[event] = [entry, *others]
    if place.starts_commands and not observes:
        _set_prefix(document, place)
    return before, _changed(text, document)


def remove(place: HookPlace) -> Literal["restored", "taken out", "none"]:
    """Take our hooks out of a client's file.

    Raises:
        ConfigurationError: the file is not what the client would read.
        OSError: it cannot be written.
    """
    file, kept, known = place.file, place.kept, _kept_of(place)
    if (plugin := plugin_of(place.client, file)) is not None:
        # First: without its file it denies every call.
        plugin.unlink(missing_ok=True)
    now = _text(file)
    if known is not None and now is not None and _digest(now.encode()) == known.digest:
        if known.before is None:
            file.unlink()
        else:
            _write(place, known.before.encode())
        kept.unlink()
        return "restored"
    document = document_of(file, place.client)
    hooks = document.get("hooks")
    had_prefix = _take_prefix(document, place)
    if not (isinstance(hooks, dict) and _without_ours(hooks)) and not had_prefix:
        kept.unlink(missing_ok=True)
        return "none"
    _write(place, _changed(now, document))
    kept.unlink(missing_ok=True)
    return "taken out"


def _kept_of(place: HookPlace) -> FileBefore | None:
    """Return what was kept of a file; None if nothing was, or it cannot be read any more."""
    found = read_kept(place.kept)
    return found if found is not None and found.file == str(place.file) else None


def was_before(pid: int, kept: Path) -> bool:
    """Return whether a process is older than the hooks, of which a file keeps what was there."""
    found = read_kept(kept)
    if found is None or found.moment.boot != boot_id() or not boot_id():
        return False
    return int(start_of(pid) or 0) / os.sysconf("SC_CLK_TCK") < found.moment.seconds


WhosePrefix: TypeAlias = Literal["ours", "another", "none"]


def prefix_of(client: HookClient, file: Path, state: Path) -> WhosePrefix:
    """Return whose program starts the commands of a client's shell, by one of its files.

    Raises:
        ConfigurationError: the file is not what the client would read.
    """
    prefix, variables = DIALECTS[client].prefix, object_of(document_of(file, client).get("env"))
    found = variables.get(prefix.variable) if prefix else None
    if not found:
        return "none"
    return "ours" if found == str(prefix_file(state, client)) else "another"


def _set_prefix(document: dict[str, Json], place: HookPlace) -> None:
    """Let our prefix start the client's commands, unless its user has one of his own."""
    program = prefix_file(place.state, place.client)
    make_private_directory(program.parent)
    write_whole(program, prefix_text(place.state).encode())
    program.chmod(0o700)
    variables = document.setdefault("env", {})
    if place.dialect.prefix is not None and isinstance(variables, dict):
        variables.setdefault(place.dialect.prefix.variable, str(program))


def _take_prefix(document: dict[str, Json], place: HookPlace) -> bool:
    """Take our prefix out. Return whether it was there."""
    prefix, variables = place.dialect.prefix, object_of(document.get("env"))
    ours = str(prefix_file(place.state, place.client))
    if prefix is None or variables.get(prefix.variable) != ours:
        return False
    del variables[prefix.variable]
    if not variables:
        del document["env"]
    return True


def _write(place: HookPlace, raw: bytes) -> None:
    """Write a client's file in one step, with the mode that it has."""
    mode = 0o644 if place.is_managed else PRIVATE
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(place.file.stat().st_mode)
    write_whole(place.file, raw)
    place.file.chmod(mode)


def write_policy(
    state: Path, workspace: str, name: PresetName, observed: Collection[HookClient] = ()
) -> list[str]:
    """Add what the preset says of a client's tools to the operator's files.

    Nothing that stands there is changed.

    Args:
        state: the directory of the proxy's own files.
        workspace: where agents may work.
        name: the preset, where there is none yet.
        observed: the clients whose hooks only record.

    Returns:
        The names of the files that were made or changed.

    Raises:
        ConfigurationError: a file cannot be read.
        OSError: it cannot be written.
    """
    policy_file = state / "generated/compiled-policy.json"
    policy = _document(policy_file, _text(policy_file))
    base = next((one for one in PRESETS if one == policy.get("base")), name)
    found = compose(preset(base), annotated_client_tools(), workspace)
    annotations_file = state / "generated/tool-annotations.json"
    config_file = state / "config.json"
    changed = []
    for file, added in (
        (annotations_file, found.annotations),
        (policy_file, found.policy),
        (config_file, found.config),
    ):
        now = _document(file, _text(file))
        whole = _joined(now, added)
        if whole != now:
            make_private_directory(file.parent)
            write_whole(file, _printed(whole))
            changed.append(str(file))
    variables: Json = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    write_whole(state / VARIABLES, _printed({"variables": variables, "observed": [*observed]}))
    return changed


def _joined(now: Mapping[str, Json], added: Mapping[str, Json]) -> dict[str, Json]:
    """Return a document with what another one has besides; what stands there wins."""
    whole = dict(now)
    for key, value in added.items():
        present = whole.get(key)
        if key not in whole:
            whole[key] = value
        elif isinstance(present, dict) and isinstance(value, dict):
            whole[key] = _joined(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            names = [*map(_name_in_list, present)]
            more = [one for one in value if _name_in_list(one) not in names]
            whole[key] = [*present, *more]
    return whole


def _name_in_list(entry: Json) -> Json:
    """Return what names an entry of a list: a rule's name, a tool's name, or itself."""
    return entry.get("name", entry.get("toolName")) if isinstance(entry, dict) else entry


def _entries(place: HookPlace, *, observes: bool) -> dict[str, Json]:
    """Return the entry of each event in the client's form."""
    dialect, state = place.dialect, Path(HOME) if place.is_managed else place.state
    return {
        event: dialect.entry(
            HookLine(
                words=tuple(hook_words(dialect, event, state, observes=observes)),
                seconds=dialect.seconds(event),
                denies=kind in GATES and not observes,
            )
        )
        for event, kind in dialect.events.items()
    }


def _without_ours(hooks: dict[str, Json]) -> bool:
    """Take our entries out; return whether there were any."""
    had = [event for event, found in hooks.items() if any(map(_is_our_entry, list_of(found)))]
    for event in had:
        hooks[event] = [one for one in list_of(hooks[event]) if not _is_our_entry(one)]
        if not hooks[event]:
            del hooks[event]
    return bool(had)


def is_first(entries: Json) -> bool:
    """Return whether the first entry of an event is ours."""
    return isinstance(entries, list) and bool(entries) and _is_our_entry(entries[0])


def _is_our_entry(entry: Json) -> bool:
    hooks = list_of(object_of(entry).get("hooks", [entry]))
    return any(is_ours(orjson.dumps(one).decode()) for one in hooks if isinstance(one, dict))


def document_of(file: Path, client: HookClient) -> dict[str, Json]:
    """Return the document of a client's file; empty if there is no file.

    Raises:
        ConfigurationError: it is no JSON object as the client takes it, or cannot be read.
    """
    text = _text(file)
    if text is not None and DIALECTS[client].has_comments:
        with suppress(NotUnderstoodError):
            text = orjson.dumps(JsonText().parse(text)).decode()
    return _document(file, text)


def _changed(text: str | None, document: Mapping[str, Json]) -> bytes:
    """Return a client's file with another document, in which nothing else is changed."""
    with suppress(NotUnderstoodError):
        return rewritten((text or "").removeprefix(BYTE_ORDER_MARK), document).encode()
    return _printed(document)


def _text(file: Path) -> str | None:
    return read_text(file) if is_there(file) else None


def _document(file: Path, text: str | None) -> dict[str, Json]:
    try:
        # Some editors of Windows begin a file with a byte order mark.
        document = orjson.loads((text or "").removeprefix("\ufeff") or "{}")
        orjson.dumps(document)
    except ValueError:
        raise ConfigurationError(f"{file} is no JSON: mend it, or name it to us later") from None
    except TypeError:
        raise ConfigurationError(f"{file} is nested too deeply to be written again") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file} is no JSON object")
    return document


def _printed(document: Mapping[str, Json]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _digest(written: bytes) -> str:
    return hashlib.sha256(written).hexdigest()
