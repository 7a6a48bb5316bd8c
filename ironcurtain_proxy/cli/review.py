"""`ironcurtain-proxy review`: show the calls that wait, and take answers.

`ironcurtain-proxy web`: answer calls that wait, and read the audit log, in a browser.
"""

import argparse
import os
import select
import socket
import sys
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.explain import explanation_of, rule_command
from ironcurtain_proxy.cli.output import complain, say, terminal_width
from ironcurtain_proxy.cli.pins import pins_warnings
from ironcurtain_proxy.cli.review_screen.plain_review import PlainReview
from ironcurtain_proxy.cli.reviewing import (
    all_of,
    answer_several,
    credential_of,
    mailboxes_of,
    state_directory,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import Proof
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, NotPendingError, utc_now

# --- the review in a terminal

_POLL_SECONDS: Final = 0.1
_CHUNK: Final = 65536


def run(options: argparse.Namespace) -> int:
    """Show calls and take answers until the person leaves."""
    # The screen is drawn on standard error, as the library does it.
    is_screen = all(s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))
    if not options.plain and not (is_screen and os.environ.get("TERM") != "dumb"):
        raise ConfigurationError("review needs a terminal; without one, use `review --plain`")
    credential = credential_of(options)
    mailboxes = mailboxes_of(options)
    for waiting in pins_warnings(state_directory()):
        complain(waiting)
    try:
        mailboxes.listen()
        if options.plain:
            return _review_lines(mailboxes, credential)
        # A second to import, and only this command needs it.
        from ironcurtain_proxy.cli.explain import explanation_of, rule_for  # noqa: PLC0415
        from ironcurtain_proxy.cli.review_screen.plain_review import ScreenSources  # noqa: PLC0415
        from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen  # noqa: PLC0415

        history = CallHistory(logs_to_read(None).members, local_time)
        sources = ScreenSources(rule=rule_for, explain=explanation_of, history=history)
        ReviewScreen(mailboxes, credential, sources).run()
        return 0
    finally:
        mailboxes.stop_listening()


def _review_lines(mailboxes: Mailboxes, credential: Proof | None) -> int:
    review = PlainReview(
        say=say,
        all_of=lambda waiting, approve: all_of(waiting, credential, approve=approve),
        width=terminal_width(),
    )
    typed = _TypedLines()
    while True:
        mailboxes.listen()
        review.show(mailboxes.pending(utc_now()), utc_now())
        lines = typed.wait(_POLL_SECONDS)
        if lines is None:
            return 0
        for line in lines:
            # What was piped in may be about a request that came just before it.
            review.show(mailboxes.pending(utc_now()), utc_now())
            if line.strip() in ("/quit", "/exit"):
                return 0
            _carry_out(review, mailboxes, credential, line)


def _carry_out(
    review: PlainReview, mailboxes: Mailboxes, credential: Proof | None, line: str
) -> None:
    try:
        command = review.read(line, utc_now())
    except NotPendingError as error:
        complain(str(error))
        return
    if command is None:
        return
    given = replace(command.answer, credential=credential)
    for one in answer_several(mailboxes, command.chosen, given):
        review.answered(one)


class _TypedLines:
    """Lines from standard input, read without blocking."""

    def __init__(self) -> None:
        self._rest = b""

    def wait(self, seconds: float) -> list[str] | None:
        """Return the lines that arrived within the time; None at the end of input."""
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
        if not ready:
            return []
        part = os.read(sys.stdin.fileno(), _CHUNK)
        if not part:
            return None if not self._rest else self._last()
        *lines, self._rest = (self._rest + part).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]

    def _last(self) -> list[str]:
        line, self._rest = self._rest, b""
        return [line.decode("utf-8", "replace")]


# --- the page in a browser


def listening_at(opened: Callable[[int], socket.socket], port: int) -> socket.socket:
    """Return a socket at the port; at 0, one that no approval of an agent's requests covers."""
    # Only this command reads the tables of shell commands.
    from ironcurtain_proxy.shell.kinds import may_be_a_service  # noqa: PLC0415

    if may_be_a_service(port):
        said = "an approval of requests to services of this machine would cover this port"
        raise ConfigurationError(f"--port: {said}: take 8790, 8808, or one from {_HIGH} on")
    for _ in range(_TRIES):
        found = opened(port)
        if not may_be_a_service(found.getsockname()[1]):
            return found
        found.close()
    raise ConfigurationError(f"the system gives out no port from {_HIGH} on: name one with --port")


_TRIES: Final = 64
_HIGH: Final = 32768


def run_web(options: argparse.Namespace) -> int:
    """Serve the page until the person stops the command."""
    # Only this command needs a web server.
    from ironcurtain_proxy.web.app import (  # noqa: PLC0415  # noqa: PLC0415
        PageSources,
        ReviewPage,
        loopback_socket,
        origins_of,
        serve_page,
    )
    from ironcurtain_proxy.web.guard import Access, PageGuard  # noqa: PLC0415

    credential = credential_of(options)
    mailboxes, logs = mailboxes_of(options), logs_to_read(None)
    access = Access()
    with listening_at(loopback_socket, options.port) as listening:
        origins = origins_of(listening, options.public_name)
        names = [origins[0], *[f"https://{name}" for name in options.public_name]]

        def show_link() -> None:
            for name in names:
                sys.stdout.write(f"{name}/#{access.ticket}\n")
            sys.stdout.flush()

        page = ReviewPage(
            mailboxes,
            CallHistory(logs.members, local_time),
            access,
            credential,
            PageSources(
                opened=show_link, complain=complain, rule=rule_command, explain=explanation_of
            ),
        )
        try:
            mailboxes.listen()
            show_link()
            complain("the link opens the page once; Ctrl-C ends it")
            serve_page(PageGuard(page.app(), access, origins), listening)
        finally:
            mailboxes.stop_listening()
    return 0
