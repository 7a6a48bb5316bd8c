"""The asker of a question: its session's client, workspace and last words of the user.

All of it is what a client says of itself, or what a program wrote down: it helps a reviewer to tell
two agents apart, and proves nothing.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, sessions_directory
from ironcurtain_proxy.mailbox.user_message import read_user_context
from ironcurtain_proxy.sessions.configuration import FILE_NAME, read_state, state_of
from ironcurtain_proxy.strict_json import strict_json

_MOST_WORDS: Final = 80


@dataclass(frozen=True, slots=True)
class Asker:
    """The asker of a question; an unknown part is empty. All texts can be printed safely."""

    client: str = ""
    workspace: str = ""
    """The workspace, with `~` for the home directory."""
    words: str = ""
    """The user's last message, cut."""

    def told(self) -> str:
        """The asker on one line: `an-agent 2.1 · ~/project · "fix the tests"`; empty: unknown."""
        words = f'"{self.words}"' if self.words else ""
        return " · ".join([part for part in (self.client, self.workspace, words) if part])


def asker_of(one: PendingRequest) -> Asker:
    """The asker of a question, from files beside it, else from the session's state file.

    Unreadable parts are left out.
    """
    session = _fields(one.directory / FILE_NAME)
    if not session:
        with suppress(ConfigurationError):
            session = state_of(one, sessions_directory(Path.home()))
    workspace, home = _text(session, "workspace"), str(Path.home())
    if workspace == home or workspace.startswith(f"{home}/"):
        workspace = f"~{workspace[len(home) :]}"
    words = " ".join((read_user_context(one.directory) or "").split())
    return Asker(
        client=visible(_text(session, "client")),
        workspace=visible(workspace),
        words=visible(words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"),
    )


def _fields(file: Path) -> Mapping[str, object]:
    with suppress(OSError, ValueError, IronCurtainError):
        found = strict_json(read_state(file))
        if isinstance(found, dict):
            return found
    return {}


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
