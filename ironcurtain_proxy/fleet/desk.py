"""The page of all machines' questions: the reviewer's page, with the database as its source.

Any number of copies serve it. A copy has no state but what it has read, and no key: whoever takes
one over can hide questions and show other words, and cannot approve. A person signs with a passkey
of the browser, or with the command that the page names. That computes the digest from the request
anew; with a passkey a person believes what the page shows.

What is shown is computed from the bytes of the request alone, and so is the digest that a person
signs. A row that was changed is another question, which the machine never asked.

Who may see the questions: a login by OpenID Connect, kept in the database for all copies.

The code flow with PKCE, as RFC 9700 has it. The database holds the digest of each word that a
browser shows, never the word: whoever reads it cannot open a page. A login lets a person see; only
a key lets a person approve.
"""

import hashlib
import secrets
import socket
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.to_thread
import httpx
import orjson
import sqlalchemy as sa
import uvicorn
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.fleet.database import (
    COUNTED,
    NOT_COUNTED,
    QUESTIONS_CHANNEL,
    DatabaseError,
    FleetDatabase,
    ShownQuestion,
)
from ironcurtain_proxy.mailbox.answering import SentAnswer, unsigned
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, utc_now
from ironcurtain_proxy.mailbox.messages import (
    read_request,
    read_signed,
    request_name,
    signed_response_bytes,
)
from ironcurtain_proxy.signing.passkeys import (
    asked_of,
    assertion,
    challenge_of,
    host_of,
    made,
)
from ironcurtain_proxy.web.app import answer_in, body_of, page_files, problem, shown_question
from ironcurtain_proxy.web.guard import PageGuard

# --- board


_SECONDS: Final = 2.0
_STEP_SECONDS: Final = 0.02


class Board:
    """The questions as they were read last."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self._shown: dict[str, PendingRequest | None] = {}

    def pending(self, _now: datetime) -> list[PendingRequest]:
        """Return the open questions, the oldest first.

        Raises:
            DatabaseError: it is away.
        """
        ids, new = self._database.waiting(self._shown.keys())
        fresh = {one.id: _read(one) for one in new}
        known = self._shown | fresh
        self._shown = {name: known[name] for name in ids if name in known}
        return [one for one in self._shown.values() if one is not None]

    def answer(
        self, one: PendingRequest, body: bytes, is_ended: Callable[[], bool] = lambda: False
    ) -> SentAnswer:
        """Send a signed answer, and wait for what its machine says of it.

        Raises:
            DatabaseError: it is away, and the answer may have been sent or not.
        """
        told = summary(one)
        signed = read_signed(body)
        if isinstance(signed, str) or (signed.question, signed.digest) != (
            one.id,
            one.request.digest,
        ):
            return SentAnswer(f"not answered: the signature is for another question: {told}")
        name = self._database.put_answer(one.id, body)
        if name is None:
            return SentAnswer(f"too late, no longer pending: {told}")
        end = monotonic() + _SECONDS
        while (outcome := self._database.outcome(one.id, name)) is None:
            if monotonic() >= end or is_ended():
                where = visible(one.directory.name)
                return SentAnswer(f"signed; {where} has not looked at it yet: {told}", taken=True)
            sleep(_STEP_SECONDS)
        if outcome == COUNTED:
            word = f"signed ({one.request.signatures} needed)" if signed.approved else "denied"
            return SentAnswer(f"{word}: {told}", taken=True)
        what = "its machine does not accept it" if outcome == NOT_COUNTED else "not answered"
        return SentAnswer(f"{what} (is the key in reviewers.json?): {told}", waits=True)


def _read(one: ShownQuestion) -> PendingRequest | None:
    """Return a question, or None if its bytes are no request that signatures settle."""
    request = read_request(request_name(one.id), one.request)
    if request is None or not request.signatures:
        return None
    return PendingRequest(Path("/") / one.host.replace("/", "-"), request)


# --- login


_TICKET_SECONDS: Final = 60
_LOGIN_SECONDS: Final = 600
_PAGE_SECONDS: Final = 8 * 3600
_PROVIDER_SECONDS: Final = 10.0
_CLOCK_SECONDS: Final = 120
"""How far the clocks of a provider and of a page may differ."""
_ALGORITHMS: Final = ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"]
_MOST_NAME: Final = 128


class LoginError(IronCurtainError):
    """A login that is refused; the message is for the person who tries."""


class Words:
    """Random words with an end, of which the database keeps the digests."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def give(self, kind: str, said: Mapping[str, str], seconds: int) -> str:
        """Return a new word that stands for what is said, for some seconds."""
        word, text = secrets.token_urlsafe(32), orjson.dumps(said).decode()
        given = {"word": _digest(word), "kind": kind, "said": text, "seconds": seconds}

        def write(connection: sa.Connection) -> None:
            connection.exec_driver_sql("DELETE FROM ironcurtain_logins WHERE ends < now()")
            connection.execute(_GIVE, given)

        self._database.run(write)
        return word

    def take(self, kind: str, word: str) -> dict[str, str] | None:
        """Return what a word stands for, once, or None if it stands for nothing."""
        return self._said(_TAKE, kind, word)

    def said(self, kind: str, word: str) -> dict[str, str] | None:
        """Return what a word stands for, or None."""
        return self._said(_READ, kind, word)

    def _said(self, statement: sa.TextClause, kind: str, word: str) -> dict[str, str] | None:
        given = {"kind": kind, "word": _digest(word)}
        found = self._database.run(lambda one: one.execute(statement, given).scalar())
        return dict(found) if isinstance(found, dict) else None


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()


_GIVE: Final = sa.text("""INSERT INTO ironcurtain_logins (word, kind, said, ends)
    VALUES (:word, :kind, CAST(:said AS jsonb), now() + make_interval(secs => :seconds))""")
_TAKE: Final = sa.text("""DELETE FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now() RETURNING said""")
_READ: Final = sa.text("""SELECT said FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now()""")


class LoginProvider(Struct, frozen=True, kw_only=True):
    """The provider, and what it knows this page by."""

    issuer: str
    client: str
    secret: str
    callback: str


class Logins:
    """The logins of persons to a page. Its calls block."""

    def __init__(self, words: Words, provider: LoginProvider) -> None:
        address = urlsplit(provider.issuer)
        is_here = address.scheme == "http" and address.hostname in {"localhost", "127.0.0.1"}
        if not is_here and (address.scheme != "https" or not address.hostname):
            raise ConfigurationError("--issuer must begin with https://")
        self._words = words
        self._provider = provider
        self._client = httpx.Client(timeout=_PROVIDER_SECONDS, follow_redirects=False)
        self._found: Mapping[str, object] | None = None

    @property
    def is_by_tls(self) -> bool:
        """Whether browsers reach the page by TLS."""
        return self._provider.callback.startswith("https:")

    def begin(self) -> tuple[str, str]:
        """Return the provider's address for a login, and a word that only this browser keeps.

        Raises:
            LoginError: the provider cannot be reached.
        """
        verifier, nonce, browser = (secrets.token_urlsafe(32) for _ in range(3))
        said = {"verifier": verifier, "nonce": nonce, "browser": _digest(browser)}
        state = self._words.give("login", said, _LOGIN_SECONDS)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        asked = {
            "response_type": "code",
            "scope": "openid",
            "client_id": self._provider.client,
            "redirect_uri": self._provider.callback,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._address('authorization_endpoint')}?{urlencode(asked)}", browser

    def end(self, state: str, code: str, browser: str) -> str:
        """Return a ticket that opens the page once.

        Raises:
            LoginError: the login was begun elsewhere, or the provider does not confirm it.
        """
        said = self._words.take("login", state)
        if said is None or not secrets.compare_digest(said["browser"], _digest(browser)):
            raise LoginError("this login was not begun in this browser, or too long ago")
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._provider.callback,
            "code_verifier": said["verifier"],
        }
        try:
            answer = self._client.post(
                self._address("token_endpoint"),
                data=given,
                auth=(self._provider.client, self._provider.secret),
            )
            token = answer.json().get("id_token", "") if answer.is_success else ""
        except (httpx.HTTPError, ValueError, AttributeError):
            token = ""
        person = self._person(token, said["nonce"])
        return self._words.give("ticket", {"person": person}, _TICKET_SECONDS)

    def open_page(self, ticket: str) -> str | None:
        """Exchange a ticket for the key of a page, or return None if it is not valid."""
        said = self._words.take("ticket", ticket)
        return None if said is None else self._words.give("page", said, _PAGE_SECONDS)

    def person(self, key: str) -> str | None:
        """Return who opened the page with a key, or None if it is none."""
        said = self._words.said("page", key)
        return None if said is None else said.get("person", "")

    def _person(self, token: object, nonce: str) -> str:
        registry = jwt.JWTClaimsRegistry(
            leeway=_CLOCK_SECONDS,
            iss={"essential": True, "value": self._provider.issuer},
            aud={"essential": True, "value": self._provider.client},
            azp={"value": self._provider.client},
            nonce={"essential": True, "value": nonce},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            keys = KeySet.import_key_set(self._client.get(self._address("jwks_uri")).json())
            claims = jwt.decode(str(token), keys, algorithms=_ALGORITHMS).claims
            registry.validate(claims)
        except (JoseError, httpx.HTTPError, ValueError, KeyError, TypeError):
            why = "the provider does not confirm this login: try again (do the clocks differ?)"
            raise LoginError(why) from None
        return str(claims["sub"])[:_MOST_NAME]

    def _address(self, name: str) -> str:
        """Return one of the provider's addresses, as it publishes them."""
        if self._found is None:
            base = self._provider.issuer.rstrip("/")
            try:
                found = self._client.get(f"{base}/.well-known/openid-configuration").json()
            except (httpx.HTTPError, ValueError):
                raise LoginError("the login's provider cannot be reached: try again") from None
            if not isinstance(found, dict) or found.get("issuer") != self._provider.issuer:
                raise LoginError("the login's provider says that it is another one")
            self._found = found
        said = self._found.get(name)
        if not isinstance(said, str):
            raise LoginError("the login's provider does not say where to log in")
        return said


# --- desk


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
