"""The page's addresses, and its server.

The addresses of the page and of its data.

`GET /` and `/static/…` are the page: files without secrets. Everything below `/api/` needs the key
of an open page (`guard`), except the exchange of a ticket for such a key:

- `POST /api/page` takes `{"ticket"}` and gives `{"key"}`.
- `GET /api/questions` stays open with the page: a JSON line with all questions at each change. A
  line with `left` has those that came, and the seconds that each question has that waits.
- `POST /api/answers` takes `{"id", "digest", "approve", "equal", "remember"?, "note"?,
  "arguments"?}`, the last as a text of JSON; `equal` has the digests of the card's other calls. The
  digest identifies the shown bytes: a question whose file has changed
  since is not answered.
- `GET /api/rule` names the command that would add a rule for a question. The page writes no rule.
  `GET /api/explanation` tells step by step why it is asked about.
- `GET /api/calls`, `/api/call` and `/api/day` read the audit log. The first two lists read its last
  40,000 lines; `?before=` goes on to the lines before.

The running server of the page, on a loopback socket.
"""

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import orjson
import uvicorn
from msgspec import Struct, field
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ironcurtain_proxy.audit.calls import MOST_READ, CallHistory
from ironcurtain_proxy.audit.display import REFUSALS, LogEntry, Selection, printable
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import (
    Proof,
    ReviewerAnswer,
    ShownChange,
    changes_in,
    file_change,
    objection,
    sent_to_all,
)
from ironcurtain_proxy.mailbox.display import (
    Field,
    also_of,
    arguments_of,
    called,
    metadata_of,
    reasons_of,
    summary,
    visible,
)
from ironcurtain_proxy.mailbox.mailboxes import (
    Mailboxes,
    PendingRequest,
    grouped,
    seconds_left,
    utc_now,
)
from ironcurtain_proxy.model.escalation import as_json
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.report.fleet import calls_part, count_calls
from ironcurtain_proxy.report.plots import part_of_page
from ironcurtain_proxy.sessions import asker_of
from ironcurtain_proxy.strict_json import strict_json
from ironcurtain_proxy.web.guard import Access, PageGuard


def day_of(history: CallHistory, chosen: Selection, now: datetime) -> str:
    """Return the plots and tables of the report, as markup. Of very many calls, those of the end.

    Raises:
        OSError: a log cannot be read.
    """
    found = history.look(chosen, most=MOST_READ)
    begin = history.when(time_of(found.before)) if found.before else ""
    return part_of_page(calls_part(count_calls(found.calls[::-1]), now, history.when, begin))


def time_of(seconds: float) -> str:
    """Return a moment as records write it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def row_of(entry: LogEntry, history: CallHistory) -> Mapping[str, str]:
    """Return a call as the page lists it."""
    names = ("by", "tool", "argument", "rule", "outcome", "client")
    return {
        "number": entry.number,
        "reference": entry.reference,
        "time": history.when(entry.time),
        "decision": entry.decision,
        **{name: printable(getattr(entry, name)) for name in names},
    }


_SHORT: Final = 36
"""Characters that have room in the two lines of a headline on a phone."""
_LOOK_SECONDS: Final = 0.2
_LISTEN_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 10.0
"""The most seconds between two lines, so that both ends notice a broken connection."""
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/static/style.css": ("style.css", "text/css; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
_SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


class PageSources(Struct, frozen=True, kw_only=True):
    """The functions of the command that the page uses."""

    opened: Callable[[], None]
    """Called when a link was used, because the next link differs."""
    complain: Callable[[str], None]
    """Called with messages for the operator."""
    rule: Callable[[PendingRequest], str] = lambda _one: ""
    """The command that adds a rule for a call, or empty if there is none. Blocks."""
    explain: Callable[[PendingRequest], list[str]] = lambda _one: []
    """Explains in lines why a call is asked about. Blocks."""


class ReviewPage(Struct, eq=False):
    """The state of the page's server: the open questions, and the open pages."""

    mailboxes: Mailboxes
    """The mailboxes with questions."""
    record: CallHistory
    """The audit logs."""
    access: Access
    """Tickets and keys."""
    credential: Proof | None
    """The answering reviewer, or None if it is a person."""
    sources: PageSources
    """The command that serves the page."""
    _waiting: dict[str, PendingRequest] = field(default_factory=dict)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def app(self) -> Starlette:
        """Return the application, without the guard."""
        shown = page_files("/")
        data = [
            Route("/api/page", self._open, methods=["POST"]),
            Route("/api/questions", self._questions),
            Route("/api/answers", self._answer, methods=["POST"]),
            Route("/api/rule", self._rule),
            Route("/api/explanation", self._explanation),
            Route("/api/calls", self._calls),
            Route("/api/call", self._call),
            Route("/api/day", self._day),
        ]
        refusals = {HTTPException: refusal}
        routes = [*shown, *data]
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=refusals)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look)
            yield
            tasks.cancel_scope.cancel()

    # --- questions -------------------------------------------------------------------------------

    async def _look(self) -> None:
        listen_at, complaint = 0.0, ""
        while True:
            if anyio.current_time() >= listen_at:
                listen_at = anyio.current_time() + _LISTEN_SECONDS
                try:
                    self.mailboxes.listen()
                except ConfigurationError as error:
                    if str(error) != complaint:
                        complaint = str(error)
                        self.sources.complain(f"not listening: {complaint}")
            found = {one.id: one for one in self.mailboxes.pending(utc_now())}
            if found != self._waiting:
                self._waiting = found
                self._changed.set()
                self._changed = anyio.Event()
            # Without free inotify watches no change is reported, so the directory is polled.
            await anyio.sleep(_LOOK_SECONDS)

    async def _questions(self, _request: Request) -> Response:
        return StreamingResponse(self._lines(), media_type="application/x-ndjson")

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            changed, waiting = self._changed, [*self._waiting.values()]
            yield await anyio.to_thread.run_sync(self._line, waiting)
            with anyio.move_on_after(_BEAT_SECONDS):
                await changed.wait()

    def _line(self, waiting: list[PendingRequest]) -> bytes:
        now = utc_now()
        shown = [shown_question(one, self.credential, now, rest) for one, *rest in grouped(waiting)]
        return orjson.dumps({"questions": shown}, option=orjson.OPT_APPEND_NEWLINE)

    # --- answers ---------------------------------------------------------------------------------

    async def _open(self, request: Request) -> Response:
        fields = await body_of(request)
        ticket = fields.get("ticket")
        key = self.access.open_page(ticket) if isinstance(ticket, str) else None
        if key is None:
            words = "this link was used already, or is not the command's: open the one it shows now"
            return problem(403, words)
        self.sources.opened()
        return JSONResponse({"key": key})

    async def _answer(self, request: Request) -> Response:
        fields = await body_of(request)
        found = answer_in(fields, self._waiting)
        if isinstance(found, Response):
            return found
        one, given = found
        if isinstance(text := fields.get("arguments"), str):
            given = replace(given, remember=None)
            try:
                given = replace(given, changed=changes_in(text, one.request))
            except ConfigurationError as error:
                return problem(400, str(error))
        if words := objection(one.request, self.credential):
            return problem(403, words)
        given = replace(given, credential=self.credential)
        equal = [] if given.changed else self._equal(one, fields.get("equal"))
        done, _ = await sent_to_all(self.mailboxes, [one, *equal], given, is_card=True)
        # Another tab may have answered it, and answers those that are equal.
        return JSONResponse({"told": done.told}) if done.taken else problem(409, done.told)

    def _equal(self, one: PendingRequest, shown: object) -> list[PendingRequest]:
        """Return the calls that were shown on the card of one, as they were shown."""
        digests = set(shown) if isinstance(shown, list) and all_text(shown) else set[str]()
        found = [other for other in self._waiting.values() if other.request.digest in digests]
        cards = grouped([one, *[other for other in found if other.id != one.id]])
        return [*cards[0][1:]]

    async def _rule(self, request: Request) -> Response:
        return await self._about(request, "rule", lambda one: {"command": self.sources.rule(one)})

    async def _explanation(self, request: Request) -> Response:
        def explained(one: PendingRequest) -> dict[str, object]:
            return {"lines": [visible(line) for line in self.sources.explain(one)]}

        return await self._about(request, "explanation", explained)

    async def _about(
        self, request: Request, what: str, find: Callable[[PendingRequest], dict[str, object]]
    ) -> Response:
        one = self._waiting.get(request.query_params.get("id", ""))
        if one is None:
            return problem(409, "too late: the call does not wait any more")
        try:
            return JSONResponse(await anyio.to_thread.run_sync(find, one))
        except ConfigurationError as error:
            return problem(409, f"no {what}: {visible(str(error))}")

    # --- the record ------------------------------------------------------------------------------

    async def _calls(self, request: Request) -> Response:
        chosen = _chosen(request, utc_now())
        before = _moment(request.query_params.get("before", ""))

        def listed() -> dict[str, object]:
            found = self.record.look(chosen, before=before)
            return {
                "calls": [row_of(one, self.record) for one in found.calls],
                "before": found.before,
                "begin": self.record.when(time_of(found.before)),
            }

        return await self._read(listed)

    async def _call(self, request: Request) -> Response:
        number = request.query_params.get("number", "")
        return await self._read(lambda: {"lines": self.record.call(number)})

    async def _day(self, request: Request) -> Response:
        now = utc_now()
        chosen = _chosen(request, now)
        return await self._read(lambda: {"markup": day_of(self.record, chosen, now)})

    async def _read(self, read: Callable[[], dict[str, object]]) -> Response:
        try:
            found = await anyio.to_thread.run_sync(read)
        except FileNotFoundError:
            return problem(404, "no call was recorded yet")
        except OSError as error:
            return problem(500, f"the audit log cannot be read: {error.strerror}")
        return Response(orjson.dumps(found), media_type="application/json")


def answer_in(
    fields: Mapping[str, object], waiting: Mapping[str, PendingRequest]
) -> tuple[PendingRequest, ReviewerAnswer] | Response:
    """Return the question that a page answers and the answer, or a refusal."""
    if not isinstance(fields.get("id"), str):
        return problem(409, "the answer names no question: its id is missing")
    one = waiting.get(str(fields["id"]))
    if one is None:
        return problem(409, "too late: the call does not wait any more")
    if fields.get("digest") != one.request.digest:
        return problem(409, "the question has changed since it was shown: look at it again")
    given = _given(fields, len(one.request.candidates))
    return problem(400, "the answer is not understood") if given is None else (one, given)


def _given(fields: Mapping[str, object], candidates: int) -> ReviewerAnswer | None:
    approved, remember = fields.get("approve"), fields.get("remember")
    note = fields.get("note", "")
    if not isinstance(approved, bool) or not isinstance(note, str):
        return None
    # `True` is an `int`, and no place in a list.
    if remember is None or (type(remember) is int and approved and 0 <= remember < candidates):
        return ReviewerAnswer(approved=approved, remember=remember, note=note, place="a browser")
    return None


def _chosen(request: Request, now: datetime) -> Selection:
    asked = request.query_params
    span = _SPANS.get(asked.get("since", ""))
    decision = asked.get("decision", "")
    decisions = REFUSALS if decision == "none" else frozenset({decision} if decision else ())
    return Selection(
        since=None if span is None else now - span,
        decisions=frozenset(decisions),
        by=asked.get("by", ""),
        text=asked.get("text", ""),
    )


def _moment(text: str) -> float:
    """Return the moment from which a page goes on to older calls; otherwise the end of the logs."""
    with suppress(ValueError):
        if (moment := float(text)) > 0:
            return moment
    return inf


async def body_of(request: Request) -> dict[str, object]:
    """Return the object in a request; empty if it has no body. The guard has bounded its length.

    Raises:
        HTTPException: the body is of another type, or is no JSON object.
    """
    try:
        body = await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "the request ends early") from None
    if not body:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the request must say Content-Type: application/json")
    with suppress(orjson.JSONDecodeError):
        if isinstance(found := strict_json(body), dict):
            return {**found}
    raise HTTPException(400, "the body is no JSON object, or says one thing twice")


def refusal(_request: Request, error: Exception) -> Response:
    """Return the refusal of a request that cannot be read, as the page shows it."""
    if not isinstance(error, HTTPException):
        raise error
    return problem(error.status_code, error.detail)


def problem(status: int, words: str) -> Response:
    """Return a refusal, as the page shows it."""
    return JSONResponse({"problem": words}, status)


def page_files(page: str) -> list[Route]:
    """Return the page itself at an address, and what belongs to it."""
    return [Route(page if path == "/" else path, _file(*file)) for path, file in _FILES.items()]


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = Path(__file__).with_name("static").joinpath(name).read_bytes()

    def respond(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return respond


def all_text(values: list[object]) -> bool:
    """Return whether each value is a text."""
    return all(isinstance(value, str) for value in values)


def shown_question(
    one: PendingRequest,
    credential: Proof | None,
    now: datetime,
    equal: Sequence[PendingRequest] = (),
    *,
    is_here: bool = True,
) -> Json:
    """Return one question, in full.

    Args:
        one: the question.
        credential: the answering reviewer, or None if it is a person.
        now: aware.
        equal: the calls that are answered with it.
        is_here: whether this machine asks; the files of another are not ours.
    """
    request = one.request
    change = file_change(request.tool, request.arguments) if is_here else ShownChange([])
    asker = asker_of(one).told() if is_here else visible(f"{one.session} on {one.directory.name}")
    return {
        "id": one.id,
        "digest": request.digest,
        "headline": summary(one),
        "long": len(called(one)) > _SHORT,
        "asker": asker,
        "secondsLeft": shown_seconds(one, now),
        "arguments": _fields(arguments_of(one, without=change.shows)),
        "changes": [*change.lines],
        "reasons": _fields(reasons_of(one)),
        "also": _fields(also_of(one)),
        "candidates": [visible(words) for words in request.candidates],
        "record": _fields(metadata_of(one)),
        "objection": objection(request, credential),
        "equal": [_shown_equal(other, one) for other in equal],
        "editable": as_json(dict(request.arguments)) if request.may_edit else None,
    }


def shown_seconds(one: PendingRequest, now: datetime) -> int | None:
    """Return the seconds until a question's deadline, or None if it has none."""
    left = seconds_left(one.request, now)
    return None if left is None else max(0, round(left))


def _shown_equal(other: PendingRequest, one: PendingRequest) -> Json:
    change = file_change(other.request.tool, other.request.arguments)
    reasons = [field for field in reasons_of(other) if field not in reasons_of(one)]
    return {
        "id": other.id,
        "digest": other.request.digest,
        "headline": summary(other),
        "arguments": _fields([*reasons, *arguments_of(other, without=change.shows)]),
        "changes": [*change.lines],
    }


def _fields(fields: Sequence[Field]) -> list[Json]:
    return [{"name": field.name, "lines": [*field.lines]} for field in fields]


# --- server


LOOPBACK = "127.0.0.1"


def loopback_socket(port: int, address: str = LOOPBACK) -> socket.socket:
    """Return a listening socket, which only this machine reaches unless another address is given.

    Args:
        port: 0 for any free one.
        address: an address of this machine.

    Raises:
        ConfigurationError: another program has the port, or the address is not this machine's.
    """
    try:
        return socket.create_server((address, port))
    except OSError as error:
        raise ConfigurationError(f"--port {port}: {error.strerror}") from error


def origins_of(listening: socket.socket, public_names: Sequence[str]) -> list[str]:
    """Return the origins under which a browser may reach the page, the first for the link."""
    port = listening.getsockname()[1]
    named = [f"{scheme}://{name}" for name in public_names for scheme in ("https", "http")]
    return [f"http://{LOOPBACK}:{port}", f"http://localhost:{port}", *named]


def serve_page(guarded: PageGuard, listening: socket.socket) -> None:
    """Serve until the person stops the command."""
    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
