"""The state of each running session, in a file of its directory, for `status`.

The configuration tells what the next session would use. Clients start sessions with variables
and files of their own, which only the session itself knows.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.processes import is_alive, this_process
from ironcurtain_proxy.mailbox.requests import utc_now
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.sessions.configuration import FILE_NAME, variables_of

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1 << 18


class RunningSession(Struct, frozen=True, kw_only=True):
    """One session whose process is running."""

    session: str
    pid: int
    workspace: str | None
    client: str
    """The client's own name for itself; empty: not known yet."""
    policy_version: str
    """The policy in force; empty: not known yet."""
    policy_problem: str
    """The reason why the files of the policy are not in force; empty: they are."""
    servers: tuple[str, ...]
    config: str | None
    mailboxes: tuple[Path, ...]
    open_questions: int


def note_session(settings: Settings, client: str = "", policy: str = "", problem: str = "") -> None:
    """Write the session's state file. A failure is logged and otherwise ignored.

    Args:
        settings: what the operator said.
        client: the client's own name for itself; empty: not known yet.
        policy: the version in force; empty: not known yet.
        problem: why the files of the policy are not what is in force; empty: they are.
    """
    owner = this_process()
    directory = settings.session_dir
    fields: dict[str, Json] = {
        "pid": owner.pid,
        "startTime": owner.start_time,
        "workspace": None if settings.workspace is None else str(settings.workspace),
        "client": client,
        "policyVersion": policy,
        "policyProblem": problem,
        "servers": [spec.name for spec in settings.servers],
        "knownAs": {spec.name: spec.annotations for spec in settings.servers},
        "variables": variables_of(settings),
        "config": None if settings.config_file is None else str(settings.config_file),
        "mailboxes": [str(place) for place in settings.mailboxes],
    }
    new = directory / f".{FILE_NAME}.{owner.pid}"
    try:
        content = orjson.dumps(fields)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        new.replace(directory / FILE_NAME)
    except (OSError, orjson.JSONEncodeError) as error:
        # A path that is not UTF-8 cannot be written as JSON.
        _log.warning("status does not show this session: %s", error)
        with suppress(OSError):
            new.unlink()


def forget_session(settings: Settings) -> None:
    """Remove the state file at the end of the session."""
    with suppress(OSError):
        (settings.session_dir / FILE_NAME).unlink()


def running_sessions(sessions: Path) -> Iterator[RunningSession]:
    """The sessions whose process is running.

    Args:
        sessions: the directory with one for each session.
    """
    for file in sorted(sessions.glob(f"*/{FILE_NAME}")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = orjson.loads(_read(file))
            if is_alive(Owner(int(found["pid"]), str(found["startTime"]))):
                yield _session(file.parent.name, found)


def _read(file: Path) -> bytes:
    # Follow no link, and do not wait for a FIFO.
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read(_MOST_BYTES)


def _session(name: str, found: dict[str, object]) -> RunningSession:
    mailboxes = tuple([Path(text) for text in _texts(found["mailboxes"])])
    waiting = Mailboxes(mailboxes, None).pending(utc_now())
    return RunningSession(
        session=name,
        pid=int(str(found["pid"])),
        workspace=None if found["workspace"] is None else str(found["workspace"]),
        client=str(found["client"]),
        policy_version=str(found.get("policyVersion", "")),
        policy_problem=str(found.get("policyProblem", "")),
        servers=_texts(found["servers"]),
        config=None if found["config"] is None else str(found["config"]),
        mailboxes=mailboxes,
        open_questions=sum(one.session == name for one in waiting),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple([str(item) for item in value]) if isinstance(value, list) else ()
