"""The page of all machines' questions: the reviewer's page, with the database as its source.

Any number of copies serve it. A copy has no state but what it has read, and no key: whoever takes
one over can hide questions and show other words, and cannot approve. A person signs with a passkey
of the browser, or with the command that the page names. That computes the digest from the request
anew; with a passkey a person believes what the page shows.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256

import anyio
import anyio.to_thread
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ironcurtain_proxy.fleet.board import Board
from ironcurtain_proxy.fleet.database import (
    QUESTIONS_CHANNEL,
    DatabaseError,
    FleetDatabase,
)
from ironcurtain_proxy.fleet.login import LoginError, Logins
from ironcurtain_proxy.mailbox.answering import unsigned
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, utc_now
from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.signing.passkeys import (
    asked_of,
    assertion,
    challenge_of,
    host_of,
    made,
)
from ironcurtain_proxy.web.app import answer_in, body_of, page_files, problem, shown_question
from ironcurtain_proxy.web.guard import PageGuard

_BEAT_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_AWAY_SECONDS = 1.0
_COOKIE = "login"
_ELSEWHERE = "the record of each machine lies there: `audit ship` sends it on"


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
        self._waiting: list[PendingRequest] = []
        self._problem = "the database has not been read yet"
        self._changed = anyio.Event()

    def app(self) -> Starlette:
        """Return the application, without the guard."""
        routes = [
            Route("/", self._enter),
            Route("/callback", self._callback),
            *page_files("/page"),
            Route("/api/page", self._open, methods=["POST"]),
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
            self._changed.set()
            self._changed = anyio.Event()

    async def _questions(self, request: Request) -> Response:
        key = _key(request)
        if (refused := await self._refused(key)) is not None:
            return refused
        return StreamingResponse(self._lines(key), media_type="application/x-ndjson")

    async def _lines(self, key: str) -> AsyncIterator[bytes]:
        """Yield the questions at each change, until the login ends."""
        while await self._refused(key) is None and not self._problem:
            changed, now = self._changed, utc_now()
            shown = [shown_question(one, None, now, is_here=False) for one in self._waiting]
            said = {"questions": shown, "passkeys": self._has_passkeys}
            yield orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
            with anyio.move_on_after(_BEAT_SECONDS):
                await changed.wait()

    async def _refused(self, key: str) -> Response | None:
        """Return the answer to somebody who may not see the questions now, or None."""
        try:
            person = await anyio.to_thread.run_sync(self._logins.person, key)
        except DatabaseError:
            return problem(503, "the database is away: questions wait on their machines")
        if person is None:
            return problem(401, "log in again: open the address without /page")
        return problem(503, self._problem) if self._problem else None

    async def _answer(self, request: Request) -> Response:
        """Say what a passkey has to sign; or hand the signed answer to the machine that asks."""
        if (refused := await self._refused(_key(request))) is not None:
            return refused
        fields = await body_of(request)
        found = answer_in(fields, {one.id: one for one in self._waiting})
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
        key = _key(request)
        if (refused := await self._refused(key)) is not None:
            return refused
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
        # Lax: the provider's page leads back here.
        answer.set_cookie(
            _COOKIE,
            browser,
            max_age=600,
            httponly=True,
            samesite="lax",
            secure=self._logins.is_by_tls,
        )
        return answer

    async def _callback(self, request: Request) -> Response:
        asked = request.query_params
        given = (asked.get("state", ""), asked.get("code", ""), request.cookies.get(_COOKIE, ""))
        try:
            ticket = await anyio.to_thread.run_sync(self._logins.end, *given)
        except (LoginError, DatabaseError) as error:
            return self._not_in(error)
        answer = RedirectResponse(f"/page#{ticket}", 303)
        answer.delete_cookie(_COOKIE)
        return answer

    def _not_in(self, error: LoginError | DatabaseError) -> Response:
        if isinstance(error, LoginError):
            return problem(403, str(error))
        self._complain(str(error))
        return problem(503, "the database is away: try again")

    async def _open(self, request: Request) -> Response:
        ticket = (await body_of(request)).get("ticket")
        try:
            key = await anyio.to_thread.run_sync(self._logins.open_page, str(ticket))
        except DatabaseError as error:
            return self._not_in(error)
        if key is None:
            return problem(403, "this link was used already: open the address without /page")
        return JSONResponse({"key": key})


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
