"""Notices that a call waits for a person: on the desktop, to a webhook, to ntfy.

Never waited for: a notice that cannot be sent is dropped, and said once in the log. A notice names
the tool and the reason, and no argument: arguments may hold secrets, and it leaves the machine.
"""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from shutil import which
from subprocess import DEVNULL
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskStatus
from msgspec import Struct, field

from ironcurtain_proxy.model.escalation import Escalation, visible

_log: Final = logging.getLogger(__name__)

QUEUE: Final = 64
"""The most notices that wait. Further ones are dropped."""
DEADLINE: Final = 5.0
"""Seconds for one notice on one way."""
_LONGEST: Final = 300
_FIRST_BAD: Final = 300
_MAC: Final = (
    *("osascript", "-e", "on run argv", "-e"),
    *("display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run"),
)


class WaitingNotice(Struct, frozen=True):
    """A notice that a call waits."""

    id: str
    session: str
    server: str
    tool: str
    reason: str

    @classmethod
    def of(cls, escalation: Escalation) -> "WaitingNotice":
        """Return the notice of a question."""
        return cls(
            id=escalation.id,
            session=escalation.session,
            server=escalation.server,
            tool=escalation.tool,
            reason=visible(escalation.why)[:_LONGEST],
        )

    @property
    def title(self) -> str:
        """The title, one line."""
        return visible(f"{self.server}/{self.tool} waits for you")[:_LONGEST]


NoticeWay: TypeAlias = Callable[[WaitingNotice], Awaitable[None]]
"""Carries one notice. May raise `OSError`."""


def desktop(platform: str = sys.platform, path: str | None = None) -> NoticeWay | None:
    """Return the way to the desktop's notices.

    It is None if there is no program for them on a path.
    """
    program = which("osascript" if platform == "darwin" else "notify-send", path=path)
    if program is None:
        return None
    start = (program, *_MAC[1:]) if platform == "darwin" else (program, "--app-name=ironcurtain")

    async def show(notice: WaitingNotice) -> None:
        # `--`: the reason is no option, whatever it begins with.
        argv = (*start, "--", notice.title, notice.reason)
        found = await anyio.run_process(argv, stdin=DEVNULL, check=False, stderr=DEVNULL)
        if found.returncode:
            raise OSError(f"{program} ended with status {found.returncode}")

    return show


def webhook(url: str) -> NoticeWay:
    """Return the way to an address, by a posted JSON object."""

    async def post(notice: WaitingNotice) -> None:
        document = {
            "event": "question",
            "id": notice.id,
            "session": notice.session,
            "server": notice.server,
            "tool": notice.tool,
            "reason": notice.reason,
            "text": f"{notice.title}: {notice.reason}",
        }
        headers = {"Content-Type": "application/json"}
        await post_once(url, orjson.dumps(document), headers)

    return post


def ntfy(url: str, token: str = "") -> NoticeWay:
    """Return the way to a topic of ntfy, by a message."""

    async def post(notice: WaitingNotice) -> None:
        headers = {"Title": notice.title.encode("ascii", "replace").decode(), "Priority": "high"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        await post_once(url, notice.reason.encode(), headers)

    return post


async def post_once(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Post without redirects, and without settings of the environment.

    Raises:
        OSError: it was not taken. The message does not name the address.
    """
    await anyio.to_thread.run_sync(_post_now, url, body, headers, abandon_on_cancel=True)


def _post_now(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    # Only for who wants notices: it takes a fortieth of the start.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        target = parts.path or "/"
        connection.request(
            "POST", f"{target}?{parts.query}" if parts.query else target, body, dict(headers)
        )
        status = connection.getresponse().status
    except HTTPException as error:
        raise OSError(type(error).__name__) from None
    finally:
        connection.close()
    if status >= _FIRST_BAD:
        raise OSError(f"it answered with status {status}")


class WaitingNotices(Struct, eq=False):
    """Sends notices beside the calls."""

    ways: Sequence[tuple[str, NoticeWay]]
    """The ways, each with its name for the log."""
    _queue: list[WaitingNotice] = field(default_factory=list)
    _came: anyio.Event = field(default_factory=anyio.Event)
    _complained: set[str] = field(default_factory=set)

    def tell(self, escalation: Escalation) -> None:
        """Queue the notice of a call that waits. Never blocks."""
        if self.ways and len(self._queue) < QUEUE:
            self._queue.append(WaitingNotice.of(escalation))
            self._came.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled."""
        task_status.started()
        while True:
            await self._came.wait()
            self._came = anyio.Event()
            while self._queue:
                notice = self._queue.pop(0)
                async with anyio.create_task_group() as tasks:
                    for name, way in self.ways:
                        tasks.start_soon(self._send, name, way, notice)

    async def _send(self, name: str, way: NoticeWay, notice: WaitingNotice) -> None:
        problem = f"nothing within {DEADLINE:g} seconds"
        with anyio.move_on_after(DEADLINE):
            try:
                await way(notice)
            except Exception as error:  # noqa: BLE001  nothing waits for it, and no call ends by it
                problem = str(error) or type(error).__name__
            else:
                self._complained.discard(name)
                return
        if name not in self._complained:
            self._complained.add(name)
            _log.warning("notices by %s do not arrive: %s", name, problem)
