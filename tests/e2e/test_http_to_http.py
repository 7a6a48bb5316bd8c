"""The front over HTTP before a server over HTTP: a stream that its server ends early."""

import threading
from collections.abc import Iterator

import anyio
import httpx
import orjson
import pytest
from starlette.responses import Response

from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Site, done, event, serving, stream
from tests.e2e.http_front import BOTH, HttpAgent, an_http_front, events
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import at, text
from tests.fakes import NO_TLS
from tests.program import PATIENCE

EVENTS_FIRST = {"Accept": "text/event-stream, application/json"}


class Polled:
    """A server that ends the stream of each call, and answers when it is asked for the rest."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.calls: list[Heard] = []
        self.site = Site(handler=self.handle)

    async def handle(self, heard: Heard) -> Response | None:
        if heard.said == "tools/call":
            self.calls.append(heard)
            return stream(event(id=f"call-{len(self.calls)}", retry="100"))
        place = heard.headers.get("last-event-id")
        if place is None:
            return None
        await anyio.to_thread.run_sync(self.may_answer.wait, PATIENCE)
        call = self.calls[int(place.partition("-")[2]) - 1]
        return stream(event(done(call, f"the rest of {place}"), id=f"{place}-done"))


@pytest.fixture
def polled() -> Iterator[Polled]:
    server = Polled()
    with serving(server.site):
        yield server
        server.may_answer.set()


@pytest.fixture
def before_it(installation: Installation, polled: Polled) -> Installation:
    installation.servers["far"] = {"url": polled.site.url}
    installation.annotations["far"] = {"echo": {}}
    installation.rules.append(rule("allow-far", server=["far"]))
    return installation


def a_call(agent: HttpAgent) -> Json:
    return agent.message("tools/call", {"name": "echo", "arguments": {}})


def test_a_stream_that_its_server_ends_early_is_ended_and_its_answer_fetched_later(
    before_it: Installation, polled: Polled
) -> None:
    with an_http_front(before_it) as front:
        agent = front.agent()
        agent.initialize()
        call = a_call(agent)
        broken_off = agent.post(call, **EVENTS_FIRST)  # ends, although the server has no answer
        said = events(broken_off.text)
        assert [message for _, message in said] == [None]
        polled.may_answer.set()
        with agent.open() as client:
            rest = client.get(agent.url, headers={"Last-Event-ID": said[-1][0]})
    (_, nothing), (_, answer) = events(rest.text)
    assert nothing is None
    assert at(answer, "id") == at(call, "id")
    assert text(at(answer, "result")) == "the rest of call-1"
    (outcome,) = before_it.outcomes()
    assert at(outcome, "result", "status") == "success"


@pytest.mark.parametrize(
    ("version", "accept"), [("2025-06-18", EVENTS_FIRST["Accept"]), ("2025-11-25", BOTH)]
)
def test_a_client_that_may_not_come_back_is_not_sent_away(
    before_it: Installation, polled: Polled, version: str, accept: str
) -> None:
    polled.may_answer.set()
    with an_http_front(before_it) as front:
        agent = front.agent()
        agent.initialize(version)
        answer = agent.post(a_call(agent), Accept=accept)
    found = _answer(answer)
    assert text(at(found, "result")) == "the rest of call-1"


def test_streams_of_calls_side_by_side_are_not_mixed_up(
    before_it: Installation, polled: Polled
) -> None:
    """Nothing says which of two calls a server's end belongs to: both are answered all the same."""
    with an_http_front(before_it) as front, httpx.Client(timeout=PATIENCE, verify=NO_TLS) as client:
        agent = front.agent()
        agent.initialize()
        headers = {**agent.headers, **agent.session, **EVENTS_FIRST}
        kind = {"Content-Type": "application/json"}
        calls = [a_call(agent), a_call(agent)]
        got: dict[str, str] = {}

        def read(call: Json) -> None:
            sent = {**headers, **kind}
            answer = client.post(agent.url, content=orjson.dumps(call), headers=sent)
            place, message = events(answer.text)[-1]
            while message is None:
                again = client.get(agent.url, headers={**headers, "Last-Event-ID": place})
                place, message = events(again.text)[-1]
            got[str(at(call, "id"))] = text(at(message, "result"))

        readers = [threading.Thread(target=read, args=[call]) for call in calls]
        for reader in readers:
            reader.start()
        polled.may_answer.set()
        for reader in readers:
            reader.join(PATIENCE)
    assert sorted(got) == sorted(str(at(call, "id")) for call in calls)
    assert sorted(got.values()) == ["the rest of call-1", "the rest of call-2"]


def _answer(response: httpx.Response) -> Json:
    if response.headers["content-type"] == "application/json":
        answer: Json = orjson.loads(response.content)
        return answer
    return events(response.text)[-1][1]
