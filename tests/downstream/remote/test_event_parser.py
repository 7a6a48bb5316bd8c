"""Events of a stream, in whatever pieces they come, and as another reader reads them."""

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.downstream.remote.event_parser import EventParser, StreamEvent

LARGEST = 1 << 16


def events(*feeds: bytes, largest: int = LARGEST) -> list[StreamEvent]:
    parser = EventParser(largest)
    return [event for one in feeds for event in parser.feed(one)]


def test_the_fields_of_an_event() -> None:
    text = (
        b"\xef\xbb\xbfid: 7\nevent: a\nretry: 50\n: heard by nobody\ndata: b\ndata:c\nother: d\n\n"
    )
    assert events(text) == [StreamEvent("a", b"b\nc", "7", 50)]


def test_an_id_stays_and_the_other_fields_do_not() -> None:
    assert events(b"id: 7\nevent: a\nretry: 5\n\ndata: b\n\n") == [
        StreamEvent("a", b"", "7", 5),
        StreamEvent("message", b"b", "7", None),
    ]


def test_an_event_without_an_empty_line_has_not_come() -> None:
    assert events(b"data: a\n\ndata: b\n") == [StreamEvent("message", b"a", "", None)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_ends_in_three_ways_in_whatever_pieces(end: bytes) -> None:
    text = end.join([b"id: 1", b"data: a", b"data: b", b"", b"data: c", b"", b""])
    wanted = [StreamEvent("message", b"a\nb", "1", None), StreamEvent("message", b"c", "1", None)]
    for size in (len(text), 3, 2, 1):
        assert events(*(text[at : at + size] for at in range(0, len(text), size))) == wanted


def test_what_is_no_utf_8_is_replaced() -> None:
    assert events(b"data: \xff\xc3\xa4\n\n") == [
        StreamEvent("message", "\ufffdä".encode(), "", None)
    ]


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"  5", "٣".encode(), b"1_0"])
def test_a_pause_that_is_no_number_is_none(value: bytes) -> None:
    assert events(b"retry:" + value + b"\ndata: a\n\n") == [StreamEvent("message", b"a", "", None)]


@pytest.mark.parametrize(
    "piece", [b"x", b"data: x\n", b"data: " + b"x" * 1000 + b"\n", b": " + b"x" * 1000, b"id: 1\n"]
)
def test_an_event_without_end_is_given_up(piece: bytes) -> None:
    parser = EventParser(LARGEST)

    def feed() -> None:
        for _ in range(2 * LARGEST):
            parser.feed(piece)

    with pytest.raises(httpx2.SSEError):
        feed()


def test_a_long_stream_of_small_events_is_no_large_one() -> None:
    parser = EventParser(100)
    assert sum(len(parser.feed(b": c\ndata: x\n\n")) for _ in range(1000)) == 1000


pieces = st.lists(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"data", b"id", b"event", b"retry", b":", b" ", b"a", b"7"]
    ),
    max_size=40,
)


@given(pieces, st.integers(1, 7))
def test_another_reader_reads_the_same(parts: list[bytes], size: int) -> None:
    # The other reader takes a carriage return at the end of all for an empty line, too.
    text = b"".join([*parts, b"\n:"])
    whole = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=text,
        request=httpx2.Request("GET", "http://a/"),
    )

    async def others() -> list[httpx2.ServerSentEvent]:
        return [one async for one in httpx2.EventSource(whole)]

    wanted = [(one.event, one.data.encode(), one.id) for one in anyio.run(others)]
    ours = events(*(text[at : at + size] for at in range(0, len(text), size)))
    assert [(one.event, one.data, one.id) for one in ours] == wanted
