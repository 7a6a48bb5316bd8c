"""A session of this process, as its state file tells of it, with a question in its mailbox."""

import os
from pathlib import Path

from msgspec.structs import replace

from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, this_process
from ironcurtain_proxy.mailbox.messages import Owner, read_request, request_bytes, request_name
from ironcurtain_proxy.model.values import Arguments
from ironcurtain_proxy.sessions import note_session
from tests.mailbox.mailbox_fixture import escalation

SESSION = "session-1"


def a_session(home: Path, box: Path, **variables: str) -> Settings:
    """Write the state file of a session that was started with these variables."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "IRONCURTAIN_SESSION_ID": SESSION}
    settings = load_settings({**environ, "ESCALATION_DIR": str(box), **variables})
    note_session(settings, policy="p1")
    return settings


def a_question(
    box: Path,
    owner: Owner | None = None,
    arguments: Arguments | None = None,
    tool: str = "read_file",
) -> PendingRequest:
    """A question of that session, as a reviewer reads it."""
    asked = replace(escalation(arguments=arguments), server="filesystem")
    raw = request_bytes(asked, owner or this_process())
    request = read_request(request_name(asked.id), raw)
    assert request is not None
    return PendingRequest(box, request)
