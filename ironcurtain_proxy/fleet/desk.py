"""The page of all machines' questions: the reviewer's page, with the database as its source.

Any number of copies serve it. A copy has no state but what it has read, and no key: whoever takes
one over can hide questions and show other words, and cannot approve. A person signs with a passkey
of the browser, or with the command that the page names. That computes the digest from the request
anew; with a passkey a person believes what the page shows.
"""

import resource
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import TypeVar

import anyio
import anyio.lowlevel
import orjson
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ironcurtain_proxy.fleet.database import QUESTIONS_CHANNEL, Board, DatabaseError, FleetDatabase
from ironcurtain_proxy.fleet.logins import LOGIN_SECONDS, LoginError, Logins, digest_of
from ironcurtain_proxy.mailbox.answering import unsigned
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, utc_now
from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.signing import asked_of, assertion, challenge_of, host_of, made
from ironcurtain_proxy.web.app import (
    answer_in,
    body_of,
    page_files,
    problem,
    refusal,
    shown_question,
)
from ironcurtain_proxy.web.guard import PageGuard

T = TypeVar("T")

_BEAT_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_AWAY_SECONDS = 1.0
_AT_ONCE = 200
"""The streams that write before other requests have their turn."""
_ANSWERS = 20
"""The answers that wait for their machines at a time, each in a thread."""
_OTHER_FILES = 128
"""Files that open pages leave for answers, logins and the database."""
_LOGINS = 4
"""The logins that wait for the provider at a time: it may be away, and no thread left else."""
_QUEUE_SECONDS = 5.0
_AWAY = "the database is away: questions wait on their machines"
_ELSEWHERE = "the record of each machine lies there: `audit ship` sends it on"


class _Open:
    """Lets the guard pass data addresses, whose keys `Desk` looks up in the database."""

    def is_open(self, _key: str) -> bool:
        return True


class _Streams:
    """The open pages, which are thousands: some write, then other requests have their turn."""

    def __init__(self) -> None:
        self.turn = 0
        """The number of times that they were woken."""
        self._waiting: list[anyio.Event] = []
        self._alone = 0

    async def wait(self, turn: int) -> None:
        """Wait until there is something to write, since a turn."""
        if turn != self.turn:
            return
        if self._alone % _AT_ONCE == 0:
            self._waiting.append(anyio.Event())
        self._alone += 1
        await self._waiting[-1].wait()

    async def wake(self) -> None:
        """Let those write that wait, and those that are about to wait."""
        self.turn, self._alone = self.turn + 1, 0
        waiting, self._waiting = self._waiting, []
        for some in waiting:
            some.set()
            await anyio.lowlevel.checkpoint()


class Desk:
    """One copy of the page."""

    def __init__(
        self,
        database: FleetDatabase,
        logins: Logins,
        origin: str,
        complain: Callable[[str], None],
    ) -> None:
        self._database = database
        self.origin = origin
        # A browser makes none for an address without a name.
        self._has_passkeys = not host_of(origin).replace(".", "").isdigit()
        self._logins = logins
        self._complain = complain
        self._board = Board(database)
        self._is_by_tls = origin.startswith("https:")
        # Neither another host of the domain nor a page without TLS can set a cookie of this name.
        self._cookie = "__Host-login" if self._is_by_tls else "login"
        self._waiting: list[PendingRequest] = []
        self._problem = "the database has not been read yet"
        self._number = 0
        """The number of changes of what waits."""
        self._streams, self._beat_at = _Streams(), 0.0
        self._pages, self._pages_at = set[str](), 0.0
        """Digests of the keys of open pages, as they were read last, and when to read again."""
        self._closed: set[str] = set()
        """Those that were closed here since the last reading began."""
        self._written: dict[tuple[tuple[str, ...], int], tuple[float, bytes]] = {}
        """The line of those who see the same machines and have seen the same change, and when it
        was written."""
        # Of the threads that all requests share, some are left by those that wait for others.
        self._open_pages = 0
        self._most_pages = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)
        self._answering = anyio.CapacityLimiter(_ANSWERS)
        self._logging_in = anyio.Semaphore(_LOGINS)

    def app(self) -> Starlette:
        """Return the application, without the guard."""
        routes = [
            Route("/", self._enter),
            Route("/callback", self._callback),
            *page_files("/page"),
            Route("/api/page", self._open, methods=["POST"]),
            Route("/api/logout", self._close, methods=["POST"]),
            Route("/api/questions", self._questions),
            Route("/api/answers", self._answer, methods=["POST"]),
            Route("/api/passkey", self._passkey, methods=["POST"]),
            *[Route(f"/api/{name}", self._elsewhere) for name in ("calls", "call", "day", "rule")],
        ]
        refusals = dict.fromkeys((HTTPException, LoginError, DatabaseError), self._not_in)
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=refusals)

    def guarded(self) -> PageGuard:
        """Return the application behind its guard."""
        return PageGuard(self.app(), _Open(), [self.origin])

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look)
            # Until it has looked at the database, or knows that this is away.
            await self._streams.wait(0)
            yield
            tasks.cancel_scope.cancel()

    # --- questions -------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read the questions at each notice, and every few seconds besides."""
        listener = self._database.listener(QUESTIONS_CHANNEL)
        try:
            while True:
                try:
                    # Before it reads: what comes in between gives a notice.
                    await run_sync(listener.wait, 0.0)
                    found = await run_sync(self._board.pending, utc_now())
                    await self._read_pages()
                    # What changes while the streams write comes with the next look.
                    await self._show(found, "")
                    await run_sync(listener.wait, _LOOK_SECONDS, abandon_on_cancel=True)
                except DatabaseError as error:
                    if not self._problem:
                        self._complain(str(error))
                    await self._show([], _AWAY)
                    await anyio.sleep(_AWAY_SECONDS)
        finally:
            listener.close()

    async def _read_pages(self) -> None:
        """Read which pages are open, every few seconds: there are thousands."""
        if monotonic() < self._pages_at:
            return
        self._closed.clear()
        found = await run_sync(self._logins.pages)
        # A page that was closed meanwhile may still be in what was read.
        self._pages = found - self._closed
        self._pages_at = monotonic() + _LOOK_SECONDS

    async def _show(self, waiting: list[PendingRequest], trouble: str) -> None:
        is_new = (waiting, trouble) != (self._waiting, self._problem)
        if is_new:
            self._waiting, self._problem = waiting, trouble
            self._number += 1
            self._written.clear()
        if is_new or monotonic() >= self._beat_at:
            self._beat_at = monotonic() + _BEAT_SECONDS
            await self._streams.wake()

    async def _questions(self, request: Request) -> Response:
        seen = await self._seen(key := _key(request))
        if self._open_pages >= self._most_pages:
            raise HTTPException(503, "too many pages are open here: close some (`ulimit -n`)")
        return StreamingResponse(self._lines(key, seen), media_type="application/x-ndjson")

    async def _lines(self, key: str, seen: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield the questions, then what changes, until the login ends.

        Thousands of pages are looked up at once, in what `_look` has read. One that is not there
        may have been opened since.
        """
        digest, number, known = digest_of(key), 0, list[PendingRequest]()
        turn = self._streams.turn
        self._open_pages += 1
        try:
            while not self._problem and (digest in self._pages or await self._is_open(key)):
                line = self._line(seen, number, known)
                number, known = self._number, self._waiting
                yield line
                await self._streams.wait(turn)
                turn = self._streams.turn
        finally:
            self._open_pages -= 1

    def _line(self, seen: tuple[str, ...], number: int, known: Collection[PendingRequest]) -> bytes:
        """Return what is new to pages that see the same machines, written once for all of them.

        Args:
            seen: patterns of the machines' names.
            number: the change that was written last; 0: everything is new.
            known: the questions that were written with it.
        """
        at, line = self._written.get((seen, number), (0.0, b""))
        if not line or monotonic() - at > 1:
            now, waiting, old = utc_now(), self._visible(seen), {one.id: one for one in known}
            came = [one for one in waiting if old.get(one.id) != one]
            shown = [shown_question(one, None, now, is_here=False) for one in came]
            said = {"questions": shown, "passkeys": self._has_passkeys}
            if number:
                said["gone"] = [*(old.keys() - {one.id for one in waiting})]
            line = orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
            self._written[seen, number] = (monotonic(), line)
        return line

    def _visible(self, seen: tuple[str, ...]) -> list[PendingRequest]:
        return [
            one
            for one in self._waiting
            if any(fnmatchcase(one.directory.name, names) for names in seen)
        ]

    async def _is_open(self, key: str) -> bool:
        with suppress(HTTPException, DatabaseError):
            if await self._seen(key) and (digest := digest_of(key)) not in self._closed:
                self._pages.add(digest)
                return True
        return False

    async def _seen(self, key: str) -> tuple[str, ...]:
        """Return which machines the person of a key sees.

        Raises:
            HTTPException: it is nobody's, or nothing can be seen now.
        """
        # First: thousands of pages that come back ask nothing of a database that is away.
        if self._problem:
            raise HTTPException(503, self._problem)
        who = await run_sync(self._logins.account, key)
        if who is None:
            raise HTTPException(401, "log in again: open the address without /page")
        return self._logins.machines(who)

    async def _answer(self, request: Request) -> Response:
        """Say what a passkey has to sign; or hand the signed answer to the machine that asks."""
        seen = await self._seen(_key(request))
        fields = await body_of(request)
        found = answer_in(fields, {one.id: one for one in self._visible(seen)})
        if isinstance(found, Response):
            return found
        one, given = found
        answer, said = unsigned(one.request, given), fields.get("passkey")
        if not isinstance(said, dict):
            return JSONResponse({"sign": asked_of(self.origin, challenge_of(answer))})
        signed = assertion(said, answer)
        if signed is None:
            return problem(400, "the passkey's answer is not understood")
        body = signed_response_bytes(signed)
        done = await run_sync(self._board.answer, one, body, limiter=self._answering)
        return JSONResponse({"told": done.told}) if done.taken else problem(409, done.told)

    async def _passkey(self, request: Request) -> Response:
        """Return the line of a passkey that the browser has just made, or what to make it of.

        The challenge is of the page's key: the line proves nothing before an administrator writes
        it beside a name.
        """
        await self._seen(key := _key(request))
        challenge, said = sha256(key.encode()).digest(), (await body_of(request)).get("made")
        if not isinstance(said, dict):
            return JSONResponse({"make": asked_of(self.origin, challenge)})
        found = await run_sync(made, said, self.origin, challenge)
        if found is None:
            return problem(400, "the browser has made no passkey for this page")
        return JSONResponse({"line": found.line})

    async def _elsewhere(self, _request: Request) -> Response:
        return problem(404, _ELSEWHERE)

    # --- logins ----------------------------------------------------------------------------------

    async def _enter(self, _request: Request) -> Response:
        address, browser = await self._at_provider(self._logins.begin)
        return self._led_to(address, browser, LOGIN_SECONDS)

    async def _callback(self, request: Request) -> Response:
        asked, browser = request.query_params, request.cookies.get(self._cookie, "")
        given = (asked.get("state", ""), asked.get("code", ""), browser)
        ticket = await self._at_provider(partial(self._logins.end, *given))
        return self._led_to(f"/page#{ticket}", "", 0)

    def _led_to(self, address: str, browser: str, seconds: int) -> Response:
        """Lead a browser elsewhere, with a cookie for so long."""
        answer = RedirectResponse(address, 303)
        # Lax: the provider's page leads back here.
        answer.set_cookie(self._cookie, browser, seconds, secure=self._is_by_tls, httponly=True)
        return answer

    async def _at_provider(self, ask: Callable[[], T]) -> T:
        """Do what may wait for the provider, with few threads: pages and answers need the others.

        Raises:
            LoginError: others wait already.
        """
        with anyio.move_on_after(_QUEUE_SECONDS) as queue:
            await self._logging_in.acquire()
        if queue.cancelled_caught:
            raise LoginError("the login's provider is slow: try again")
        try:
            return await run_sync(ask)
        finally:
            self._logging_in.release()

    def _not_in(self, request: Request, error: Exception) -> Response:
        """Return the answer to a request that is refused."""
        if isinstance(error, HTTPException):
            return refusal(request, error)
        if isinstance(error, LoginError):
            return problem(403, str(error))
        if not self._problem:
            self._complain(str(error))
        return problem(503, _AWAY)

    async def _open(self, request: Request) -> Response:
        ticket = (await body_of(request)).get("ticket")
        found = await run_sync(self._logins.open_page, str(ticket))
        if found is None:
            raise HTTPException(403, "this link was used already: open the address without /page")
        key, who = found
        return JSONResponse({"key": key, "person": visible(who.name)})

    async def _close(self, request: Request) -> Response:
        """End a login: here at once, at other copies within seconds."""
        key, elsewhere = _key(request), ""
        await run_sync(self._logins.close_page, key)
        self._closed.add(digest_of(key))
        self._pages.discard(digest_of(key))
        await self._streams.wake()
        with suppress(LoginError):
            elsewhere = await self._at_provider(self._logins.way_out)
        return JSONResponse({"elsewhere": elsewhere})


def _key(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else ""
