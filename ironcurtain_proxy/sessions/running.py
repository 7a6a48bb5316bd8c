"""The state of each running session, in a file of its directory, for `status`.

The configuration tells what the next session would use. Clients start sessions with variables
and files of their own, which only the session itself knows.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, json

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, is_alive, this_process, utc_now
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.private_files import make_private_directory, write_whole
from ironcurtain_proxy.sessions.configuration import FILE_NAME, read_state, variables_of

_log = logging.getLogger(__name__)


class SessionState(Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a session, as its file has it."""

    pid: int
    start_time: str
    workspace: str | None
    client: str
    """The client's own name for itself; empty: not known yet."""
    policy_version: str = ""
    """The policy in force; empty: not known yet."""
    policy_problem: str = ""
    """The reason why the files of the policy are not in force; empty: they are."""
    servers: tuple[str, ...]
    known_as: dict[str, str] = {}
    """The servers' names in policy and annotations, by the operator's name."""
    variables: dict[str, str] = {}
    """The variables that give another process the settings of the session."""
    config: str | None
    mailboxes: tuple[str, ...]


class RunningSession(Struct, frozen=True, kw_only=True):
    """One session whose process is running."""

    session: str
    state: SessionState
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
    state = SessionState(
        pid=owner.pid,
        start_time=owner.start_time,
        workspace=None if settings.workspace is None else str(settings.workspace),
        client=client,
        policy_version=policy,
        policy_problem=problem,
        servers=tuple([spec.name for spec in settings.servers]),
        known_as={spec.name: spec.annotations for spec in settings.servers},
        variables=variables_of(settings),
        config=None if settings.config_file is None else str(settings.config_file),
        mailboxes=tuple([str(place) for place in settings.mailboxes]),
    )
    try:
        make_private_directory(directory)
        write_whole(directory / FILE_NAME, json.encode(state))
    except (OSError, UnicodeEncodeError) as error:
        # A path that is not UTF-8 cannot be written as JSON.
        _log.warning("status does not show this session: %s", error)


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
        # A torn or foreign file is no session: it may hold no UTF-8, or nest without end.
        with suppress(OSError, ValueError, RecursionError):
            state = json.decode(read_state(file), type=SessionState)
            if is_alive(Owner(state.pid, state.start_time)):
                name = file.parent.name
                waiting = Mailboxes([Path(text) for text in state.mailboxes], None)
                own = [one for one in waiting.pending(utc_now()) if one.session == name]
                yield RunningSession(session=name, state=state, open_questions=len(own))
