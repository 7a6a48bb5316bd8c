"""The configuration of the session that asks, for a reviewer in another process.

A client starts a session with variables of its own, so the configuration of the reviewer's terminal
can be another one. A session therefore writes its settings as variables to its state file.

That file is read from the reviewer's own `~/.ironcurtain` alone, where whoever can write can change
the policy itself. A mailbox that lies elsewhere names no configuration: its owner could make a rule
look narrow that opens everything.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.reading.environment import (
    CONFIG_VARIABLE,
    ISOLATION_VARIABLE,
    SETTING_VARIABLES,
)
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, is_alive
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.private_files import read_beginning
from ironcurtain_proxy.strict_json import strict_json

FILE_NAME: Final = "session.json"
_MOST_BYTES: Final = 1 << 18
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class SessionConfiguration(Struct, frozen=True, kw_only=True):
    """The settings of a running session, as its files give them now."""

    settings: Settings
    environ: Mapping[str, str]
    policy_version: str
    """The version of the policy in force there; empty: not known."""
    policy_problem: str
    """The reason why the files of the policy are not in force there; empty: they are."""


def command_prefix(asking: SessionConfiguration, environ: Mapping[str, str]) -> str:
    """The words before a command that make it use the session's files; empty: none are needed.

    Args:
        asking: the session.
        environ: the variables of the terminal.
    """
    words = []
    for name in (CONFIG_VARIABLE, "GENERATED_DIR"):
        usual = str(asking.settings.state_dir / CONFIG_NAME) if name == CONFIG_VARIABLE else None
        here, there = environ.get(name) or usual, asking.environ.get(name) or usual
        if here != there:
            words.append(f"-u {name}" if there is None else shlex.quote(f"{name}={there}"))
    return f"env {' '.join(words)} " if words else ""


def variables_of(settings: Settings) -> dict[str, str]:
    """The variables that give another process of this user these settings. No secret is one."""
    said = {
        CONFIG_VARIABLE: settings.config_file,
        "GENERATED_DIR": settings.generated_dir,
        "TOOL_ANNOTATIONS_DIR": settings.tool_annotations_dir,
        "ALLOWED_DIRECTORY": settings.workspace,
        "CONTAINER_WORKSPACE_DIR": settings.container_workspace_dir,
        "UNKNOWN_TOOLS": settings.unknown_tools,
        ISOLATION_VARIABLE: settings.inherited.get(ISOLATION_VARIABLE),
    }
    found = {name: str(value) for name, value in said.items() if value}
    if settings.protected_paths:
        paths = [str(path) for path in settings.protected_paths]
        found["PROTECTED_PATHS"] = orjson.dumps(paths).decode()
    return found


def configuration_of(
    one: PendingRequest, sessions: Path, environ: Mapping[str, str]
) -> SessionConfiguration:
    """The configuration of the session that asked a question.

    Args:
        one: the question.
        sessions: the directory with one for each session of this user.
        environ: the reviewer's variables; those of the session take their place.

    Raises:
        ConfigurationError: it is not known, or cannot be used.
    """
    said = state_of(one, sessions)
    own = {name: value for name, value in environ.items() if name not in SETTING_VARIABLES}
    theirs = _mapping(said.get("variables"))
    variables = {**own, **{name: theirs[name] for name in theirs if name in SETTING_VARIABLES}}
    # A copy: reading takes secrets out of what it is handed.
    settings = load_settings(dict(variables))
    return SessionConfiguration(
        settings=replace(settings, servers=_servers(settings, _mapping(said.get("knownAs")))),
        environ=variables,
        policy_version=str(said.get("policyVersion", "")),
        policy_problem=str(said.get("policyProblem", "")),
    )


def _servers(settings: Settings, known_as: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """The servers of the session: those of the files, and those of its variables by name alone."""
    found = {spec.name: spec for spec in settings.servers}
    return tuple(
        [
            replace(
                found.get(name) or ServerSpec(name=name, command="true", annotations=annotations),
                annotations=annotations,
            )
            for name, annotations in known_as.items()
        ]
    )


def read_state(file: Path) -> bytes:
    """The content of a state file.

    Raises:
        OSError: it cannot be read.
    """
    return read_beginning(file, _MOST_BYTES)


def state_of(one: PendingRequest, sessions: Path) -> Mapping[str, object]:
    """The state file of the session that asked, checked against the question.

    Raises:
        ConfigurationError: there is none, or it is another session's.
    """
    if not _SESSION.fullmatch(one.request.session):
        raise ConfigurationError("the question names no session: its configuration is not known")
    try:
        place = MailboxDirectory.open(sessions / one.request.session, create=False)
        try:
            said = strict_json(place.read(FILE_NAME, _MOST_BYTES))
        finally:
            place.close()
    except (OSError, ValueError, UnacceptableFileError):
        raise ConfigurationError(
            "the configuration of the session that asks is not known here: it is not one of "
            f"{sessions}; run `ironcurtain-proxy explain` as the user of that session"
        ) from None
    if not isinstance(said, dict) or not _is_asking(said, one):
        raise ConfigurationError(
            "the configuration of the session that asks is not known: another process asks in "
            "its name, or it runs an earlier release"
        )
    return said


def _is_asking(said: Mapping[str, object], one: PendingRequest) -> bool:
    """Whether the question is one of this running process, in one of its mailboxes."""
    pid, started, boxes = said.get("pid"), said.get("startTime"), said.get("mailboxes")
    if not isinstance(pid, int) or not isinstance(started, str) or not isinstance(boxes, list):
        return False
    owner, here = Owner(pid, started), os.path.realpath(one.directory)
    return (
        one.request.owner == owner
        and is_alive(owner)
        and isinstance(said.get("variables"), dict)
        and any(isinstance(box, str) and os.path.realpath(box) == here for box in boxes)
    )


def _mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(name): text for name, text in value.items() if isinstance(text, str)}
