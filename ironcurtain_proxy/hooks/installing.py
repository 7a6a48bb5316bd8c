"""The hooks in clients' files: put in first, told apart from other people's, and taken out again.

What was there is kept whole in `~/.ironcurtain/clients/hooks-CLIENT.json`. If nobody changed the
file since, taking out restores it byte for byte; otherwise our entries alone are taken out.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct, json

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.annotating.known import known_servers
from ironcurtain_proxy.config.presets.compose import Documents, compose
from ironcurtain_proxy.config.presets.preset import PRESETS, PresetName, preset
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import FETCH, FILES, SHELL, SHELL_TOOL
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.kernel import VARIABLES, fired_file, problem_file
from ironcurtain_proxy.hooks.launching import hook_line, hook_words, is_ours
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.private_files import make_private_directory, write_whole

_FILES: Final[Mapping[HookClient, tuple[str, ...]]] = {
    "claude": (".claude", "settings.json"),
    "codex": (".codex", "hooks.json"),
    "gemini": (".gemini", "settings.json"),
}
"""The user's file with hooks, by client, from the home."""
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK")
"""The variables that a kernel starts with, as they are when the hooks are installed."""

_PROJECT_FILES: Final[Mapping[HookClient, tuple[str, ...]]] = {
    "claude": (".claude/settings.json", ".claude/settings.local.json"),
    "codex": (".codex/config.toml",),
    "gemini": (".gemini/settings.json",),
}
"""A project's own settings, by client."""

HookState: TypeAlias = Literal["absent", "installed", "incomplete", "switched off"]
"""`incomplete`: some events have no hook of ours, or it is not the first."""


class _Kept(Struct, frozen=True):
    """What was in a client's file before."""

    file: str
    before: str | None
    """None: there was no file."""
    digest: str
    """SHA-256 of what we wrote."""


def file_of(client: HookClient, home: Path) -> Path:
    """Return the user's file with hooks, with all links followed."""
    return Path(os.path.realpath(home.joinpath(*_FILES[client])))


def install(client: HookClient, home: Path, state: Path) -> Path:
    """Put our hooks first in a client's file, and keep what was there.

    Raises:
        ConfigurationError: the file is not what the client would read.
        OSError: it cannot be written.
    """
    file = file_of(client, home)
    before = _text(file)
    document = _document(file, before)
    hooks = document.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise ConfigurationError(f'{file}: "hooks" is no object')
    _without_ours(hooks)
    for event, entry in _entries(client, state).items():
        others = hooks.get(event, [])
        if not isinstance(others, list):
            raise ConfigurationError(f'{file}: "hooks.{event}" is no list')
        hooks[event] = [entry, *others]
    written = _printed(document)
    kept = _kept_file(state, client)
    if not kept.exists():
        make_private_directory(kept.parent)
        write_whole(kept, json.encode(_Kept(str(file), before, _digest(written))))
    else:
        known = json.decode(kept.read_bytes(), type=_Kept)
        write_whole(kept, json.encode(_Kept(known.file, known.before, _digest(written))))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, written)
    return file


def remove(client: HookClient, home: Path, state: Path) -> Literal["restored", "taken out", "none"]:
    """Take our hooks out of a client's file.

    Raises:
        ConfigurationError: the file is not what the client would read.
        OSError: it cannot be written.
    """
    file, kept = file_of(client, home), _kept_file(state, client)
    now = _text(file)
    if kept.exists():
        known = json.decode(kept.read_bytes(), type=_Kept)
        if now is not None and _digest(now.encode()) == known.digest:
            if known.before is None:
                file.unlink()
            else:
                write_whole(file, known.before.encode())
            kept.unlink()
            return "restored"
    document = _document(file, now)
    hooks = document.get("hooks")
    if not isinstance(hooks, dict) or not _without_ours(hooks):
        kept.unlink(missing_ok=True)
        return "none"
    write_whole(file, _printed(document))
    kept.unlink(missing_ok=True)
    return "taken out"


def state_of(client: HookClient, home: Path) -> HookState:
    """Return whether a client's file has our hooks.

    Raises:
        ConfigurationError: the file is not what the client would read.
    """
    file = file_of(client, home)
    document = _document(file, _text(file))
    hooks = document.get("hooks")
    if document.get("disableAllHooks") is True:
        return "switched off"
    found = hooks if isinstance(hooks, dict) else {}
    first = {event: _is_first(found.get(event)) for event in DIALECTS[client].events}
    if all(first.values()):
        return "installed"
    return "incomplete" if any(map(_has_ours, found.values())) else "absent"


def switched_off_by(client: HookClient, project: Path) -> Path | None:
    """Return the file of a project that switches all hooks off; None: none does.

    Clients obey such a file without a word.
    """
    for name in _PROJECT_FILES[client]:
        file = project / name
        with suppress(OSError, ValueError, ConfigurationError, RecursionError):
            text = file.read_text("utf-8")
            document = tomllib.loads(text) if file.suffix == ".toml" else _document(file, text)
            if _switches_off(document):
                return file
    return None


def _switches_off(document: Mapping[str, object]) -> bool:
    gemini, codex = document.get("hooksConfig"), document.get("features")
    off = isinstance(gemini, dict) and gemini.get("enabled") is False
    named = isinstance(gemini, dict) and "ironcurtain" in (gemini.get("disabled") or ())
    without = isinstance(codex, dict) and codex.get("hooks") is False
    return document.get("disableAllHooks") is True or off or named or without


def last_problem(client: HookClient, state: Path) -> str:
    """Return why the last kernel of a client could not start; empty if it could."""
    with suppress(OSError):
        return problem_file(state, client).read_text("utf-8", "replace").strip()
    return ""


def last_event(client: HookClient, state: Path) -> datetime | None:
    """Return when a kernel last had an event of a client; None: never."""
    with suppress(OSError):
        return datetime.fromtimestamp(fired_file(state, client).stat().st_mtime, UTC)
    return None


def write_policy(state: Path, workspace: str, name: PresetName) -> list[str]:
    """Add what the preset says of a client's tools to the operator's files.

    Nothing that stands there is changed.

    Returns:
        The names of the files that were made or changed.

    Raises:
        ConfigurationError: a file cannot be read.
        OSError: it cannot be written.
    """
    policy_file = state / "generated/compiled-policy.json"
    policy = _document(policy_file, _text(policy_file))
    base = next((one for one in PRESETS if one == policy.get("base")), name)
    found = _documents(base, workspace)
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
    write_whole(state / VARIABLES, _printed({"variables": variables}))
    return changed


def _documents(name: PresetName, workspace: str) -> Documents:
    known = known_servers()
    servers = [
        annotate(
            server,
            [{"name": tool, "inputSchema": {**one.schema}} for tool, one in known[server].items()],
        )
        for server in (FILES, FETCH)
    ]
    return compose(preset(name), [*servers, annotate(SHELL, [SHELL_TOOL])], workspace)


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
            names = [one.get("name") if isinstance(one, dict) else one for one in present]
            more = [
                one
                for one in value
                if (one.get("name") if isinstance(one, dict) else one) not in names
            ]
            whole[key] = [*present, *more]
    return whole


def _entries(client: HookClient, state: Path) -> dict[str, Json]:
    """Return the entry of each event in the client's form."""
    entries: dict[str, Json] = {}
    for event, seconds in DIALECTS[client].events.items():
        hook: dict[str, Json] = {"type": "command", "timeout": seconds}
        if client == "claude":
            first, *rest = hook_words(client, event, state)
            hook |= {"command": first, "args": [*rest]}
        elif client == "gemini":
            hook |= {"name": "ironcurtain", "timeout": seconds * 1000}
            hook["command"] = hook_line(client, event, state)
        else:
            hook["command"] = hook_line(client, event, state)
        entries[event] = {"hooks": [hook]}
    return entries


def _without_ours(hooks: dict[str, Json]) -> bool:
    """Take our entries out; return whether there were any."""
    had = False
    for event in [*hooks]:
        entries = hooks[event]
        if not isinstance(entries, list):
            continue
        others = [one for one in entries if not _is_our_entry(one)]
        had = had or len(others) != len(entries)
        if others or not entries:
            hooks[event] = others
        else:
            del hooks[event]
    return had


def _has_ours(entries: Json) -> bool:
    return isinstance(entries, list) and any(map(_is_our_entry, entries))


def _is_first(entries: Json) -> bool:
    return isinstance(entries, list) and bool(entries) and _is_our_entry(entries[0])


def _is_our_entry(entry: Json) -> bool:
    inner = entry.get("hooks") if isinstance(entry, dict) else None
    hooks = inner if isinstance(inner, list) else []
    return any(is_ours(orjson.dumps(one).decode()) for one in hooks if isinstance(one, dict))


def _text(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error


def _document(file: Path, text: str | None) -> dict[str, Json]:
    try:
        document = orjson.loads(text or "{}")
    except ValueError:
        raise ConfigurationError(f"{file} is no JSON: mend it, or name it to us later") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file} is no JSON object")
    return document


def _printed(document: Mapping[str, Json]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _digest(written: bytes) -> str:
    return hashlib.sha256(written).hexdigest()


def _kept_file(state: Path, client: HookClient) -> Path:
    return state / "clients" / f"hooks-{client}.json"
