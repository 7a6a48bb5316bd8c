"""The page of all machines' questions: the reviewer's page, with the database as its source.

Any number of copies serve it. A copy has no state but what it has read, and no key: whoever takes
one over can hide questions and show other words, and cannot approve. A person signs with a passkey
of the browser, or with the command that the page names. That computes the digest from the request
anew; with a passkey a person believes what the page shows.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from hashlib import sha256
from time import monotonic
from typing import Literal, TypedDict

import anyio
import anyio.to_thread
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ironcurtain_proxy.fleet.database import QUESTIONS_CHANNEL, Board, DatabaseError, FleetDatabase
from ironcurtain_proxy.fleet.logins import LOGIN_SECONDS, LoginError, Logins, digest_of
from ironcurtain_proxy.mailbox.answering import unsigned
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, utc_now
from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.signing.passkeys import asked_of, assertion, challenge_of, host_of, made
from ironcurtain_proxy.web.app import answer_in, body_of, page_files, problem, shown_question
from ironcurtain_proxy.web.guard import PageGuard

_BEAT_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_AWAY_SECONDS = 1.0
_ELSEWHERE = "the record of each machine lies there: `audit ship` sends it on"


class _Cookie(TypedDict):
    secure: bool
    httponly: bool
    samesite: Literal["lax"]


class _Open:
    """Lets the guard pass data addresses, whose keys `Desk` looks up in the database."""

    def is_open(self, _key: str) -> bool:
        return True


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
        is_by_tls = logins.is_by_tls
        # Neither another host of the domain nor a page without TLS can set a cookie of this name.
        self._cookie = "__Host-login" if is_by_tls else "login"
        # Lax: the provider's page leads back here.
        self._how: _Cookie = {"secure": is_by_tls, "httponly": True, "samesite": "lax"}
        self._waiting: list[PendingRequest] = []
        self._problem = "the database has not been read yet"
        self._changed = anyio.Event()
        self._pages: frozenset[str] = frozenset()
        """Digests of the keys of open pages, as they were read last."""
        self._written: dict[tuple[str, ...], tuple[float, bytes]] = {}
        """The line of those who see the same machines, and when it was written."""

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
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look)
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
                    await anyio.to_thread.run_sync(listener.wait, 0.0)
                    found = await anyio.to_thread.run_sync(self._board.pending, utc_now())
                    self._pages = await anyio.to_thread.run_sync(self._logins.pages)
                    self._show(found, "")
                    await anyio.to_thread.run_sync(
                        listener.wait, _LOOK_SECONDS, abandon_on_cancel=True
                    )
                except DatabaseError as error:
                    if not self._problem:
                        self._complain(str(error))
                    self._show([], "the database is away: questions wait on their machines")
                    await anyio.sleep(_AWAY_SECONDS)
        finally:
            listener.close()

    def _show(self, waiting: list[PendingRequest], trouble: str) -> None:
        if (waiting, trouble) != (self._waiting, self._problem):
            self._waiting, self._problem = waiting, trouble
            self._wake()

    def _wake(self) -> None:
        self._written.clear()
        self._changed.set()
        self._changed = anyio.Event()

    async def _questions(self, request: Request) -> Response:
        seen = await self._seen(key := _key(request))
        if isinstance(seen, Response):
            return seen
        return StreamingResponse(self._lines(key, seen), media_type="application/x-ndjson")

    async def _lines(self, key: str, seen: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield the questions at each change, until the login ends.

        Thousands of pages are looked up at once, in what `_look` has read. One that is not there
        may have been opened since.
        """
        digest = digest_of(key)
        while not self._problem and (
            digest in self._pages or not isinstance(await self._seen(key), Response)
        ):
            changed = self._changed
            yield self._line(seen)
            with anyio.move_on_after(_BEAT_SECONDS):
                await changed.wait()

    def _line(self, seen: tuple[str, ...]) -> bytes:
        """Return the questions of some machines, written once a second for all who see these."""
        at, line = self._written.get(seen, (0.0, b""))
        if not line or monotonic() - at > 1:
            now = utc_now()
            shown = [shown_question(one, None, now, is_here=False) for one in self._visible(seen)]
            said = {"questions": shown, "passkeys": self._has_passkeys}
            line = orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
            self._written[seen] = (monotonic(), line)
        return line

    def _visible(self, seen: tuple[str, ...]) -> list[PendingRequest]:
        return [
            one
            for one in self._waiting
            if any(fnmatchcase(one.directory.name, names) for names in seen)
        ]

    async def _seen(self, key: str) -> tuple[str, ...] | Response:
        """Return which machines the person of a key sees, or the answer to nobody."""
        try:
            who = await anyio.to_thread.run_sync(self._logins.account, key)
        except DatabaseError:
            return problem(503, "the database is away: questions wait on their machines")
        if who is None:
            return problem(401, "log in again: open the address without /page")
        return problem(503, self._problem) if self._problem else self._logins.machines(who)

    async def _answer(self, request: Request) -> Response:
        """Say what a passkey has to sign; or hand the signed answer to the machine that asks."""
        seen = await self._seen(_key(request))
        if isinstance(seen, Response):
            return seen
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
        try:
            body = signed_response_bytes(signed)
            done = await anyio.to_thread.run_sync(self._board.answer, one, body)
        except DatabaseError as error:
            return self._not_in(error)
        return JSONResponse({"told": done.told}) if done.taken else problem(409, done.told)

    async def _passkey(self, request: Request) -> Response:
        """Return the line of a passkey that the browser has just made, or what to make it of.

        The challenge is of the page's key: the line proves nothing before an administrator writes
        it beside a name.
        """
        seen = await self._seen(key := _key(request))
        if isinstance(seen, Response):
            return seen
        challenge = sha256(key.encode()).digest()
        said = (await body_of(request)).get("made")
        if not isinstance(said, dict):
            return JSONResponse({"make": asked_of(self.origin, challenge)})
        found = await anyio.to_thread.run_sync(made, said, self.origin, challenge)
        if found is None:
            return problem(400, "the browser has made no passkey for this page")
        return JSONResponse({"line": found.line})

    async def _elsewhere(self, _request: Request) -> Response:
        return problem(404, _ELSEWHERE)

    # --- logins ----------------------------------------------------------------------------------

    async def _enter(self, _request: Request) -> Response:
        try:
            address, browser = await anyio.to_thread.run_sync(self._logins.begin)
        except (LoginError, DatabaseError) as error:
            return self._not_in(error)
        answer = RedirectResponse(address, 303)
        answer.set_cookie(self._cookie, browser, max_age=LOGIN_SECONDS, **self._how)
        return answer

    async def _callback(self, request: Request) -> Response:
        asked, browser = request.query_params, request.cookies.get(self._cookie, "")
        given = (asked.get("state", ""), asked.get("code", ""), browser)
        try:
            ticket = await anyio.to_thread.run_sync(self._logins.end, *given)
        except (LoginError, DatabaseError) as error:
            return self._not_in(error)
        answer = RedirectResponse(f"/page#{ticket}", 303)
        answer.delete_cookie(self._cookie, **self._how)
        return answer

    def _not_in(self, error: LoginError | DatabaseError) -> Response:
        if isinstance(error, LoginError):
            return problem(403, str(error))
        self._complain(str(error))
        return problem(503, "the database is away: try again")

    async def _open(self, request: Request) -> Response:
        ticket = (await body_of(request)).get("ticket")
        try:
            found = await anyio.to_thread.run_sync(self._logins.open_page, str(ticket))
        except DatabaseError as error:
            return self._not_in(error)
        if found is None:
            return problem(403, "this link was used already: open the address without /page")
        key, who = found
        return JSONResponse({"key": key, "person": visible(who.name)})

    async def _close(self, request: Request) -> Response:
        """End a login: here at once, at other copies within seconds."""
        key = _key(request)
        try:
            elsewhere = await anyio.to_thread.run_sync(self._logins.close_page, key)
        except DatabaseError as error:
            return self._not_in(error)
        self._pages -= {digest_of(key)}
        self._wake()
        return JSONResponse({"elsewhere": elsewhere})


def _key(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else ""


def serve_desk(desk: Desk, listening: socket.socket) -> None:
    """Serve until the person stops the command."""
    config = uvicorn.Config(
        PageGuard(desk.app(), _Open(), [desk.origin]),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
