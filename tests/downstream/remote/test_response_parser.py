"""The bytes of a response, whole and in pieces, as servers send them and as they should not."""

from collections.abc import Iterator
from typing import Final

import httpx2
import pytest

from ironcurtain_proxy.downstream.remote.response_parser import ResponseParser

OK: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LIMIT: Final = 1 << 16


def read(*feeds: bytes, ended: bool = False) -> ResponseParser:
    parser = ResponseParser()
    for one in feeds:
        parser.feed(one)
    if ended:
        parser.end()
    return parser


WHOLE: Final[dict[str, tuple[bytes, int, bytes, bool]]] = {
    "a length": (OK + b"Content-Length: 2\r\n\r\nhi", 200, b"hi", True),
    "chunks": (CHUNKED + b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", 200, b"hi", True),
    "chunks with extensions": (CHUNKED + b"2;a=b\r\nhi\r\n0;c\r\n\r\n", 200, b"hi", True),
    "a trailer": (CHUNKED + b"2\r\nhi\r\n0\r\nX: y\r\n\r\n", 200, b"hi", True),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "no reason": (b"HTTP/1.1 202 \r\nContent-Length: 0\r\n\r\n", 202, b"", True),
    "one that closes": (
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi",
        *(200, b"hi", False),
    ),
    "an older version": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi", False),
    "early hints": (
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi",
        *(200, b"hi", True),
    ),
}


@pytest.mark.parametrize(("text", "status", "body", "is_kept"), WHOLE.values(), ids=WHOLE)
def test_a_response_is_the_same_in_whatever_pieces_it_comes(
    text: bytes, status: int, body: bytes, is_kept: bool
) -> None:
    for size in (len(text), 7, 1):
        parser = read(*(text[at : at + size] for at in range(0, len(text), size)))
        assert (parser.status, parser.take(), parser.is_complete) == (status, body, True)
        assert parser.is_kept is is_kept


def test_a_body_without_a_length_goes_to_the_end_of_the_connection() -> None:
    parser = read(OK + b"\r\nhi", b" there", ended=True)
    assert (parser.take(), parser.is_complete, parser.is_kept) == (b"hi there", True, False)


def test_names_are_in_lower_case_and_an_early_response_leaves_no_header() -> None:
    early = b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
    parser = read(early + OK + b"X-Empty:\r\nX-A:  b \r\nContent-Length: 0\r\n\r\n")
    assert parser.headers == [(b"x-empty", b""), (b"x-a", b"b"), (b"content-length", b"0")]


def test_a_trailer_is_no_header() -> None:
    parser = read(CHUNKED + b"0\r\nContent-Type: text/event-stream\r\n\r\n")
    assert [name for name, _ in parser.headers] == [b"transfer-encoding"]


@pytest.mark.parametrize("after", [OK + b"Content-Length: 0\r\n\r\n", b"x", b"HTTP/1.1 100 C\r\n"])
def test_what_comes_after_a_response_spoils_the_connection_alone(after: bytes) -> None:
    text = OK + b"Content-Length: 2\r\n\r\nhi"
    for feeds in ((text + after,), (text, after)):
        parser = read(*feeds)
        assert (parser.status, parser.take(), parser.is_kept) == (200, b"hi", False)


REFUSED: Final[dict[str, bytes]] = {
    "no response": b"SSH-2.0-OpenSSH_9.9\r\n",
    "another version": b"HTTP/2.0 200 OK\r\n\r\n",
    "a switch of protocols": b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
    "a length and chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and a length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "a length beyond all numbers": OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    "another transfer coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "two transfer codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a chunk without a size": CHUNKED + b"zz\r\n",
    "a chunk beyond all numbers": CHUNKED + b"f" * 17 + b"\r\n",
    "a header in two lines": OK + b"A: b\r\n c\r\n\r\n",
    "a header without a name": OK + b": b\r\n\r\n",
    "a zero byte": OK + b"A: b\0c\r\n\r\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_two_programs_could_read_differently_is_refused(text: bytes) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        read(text)


def forever(piece: bytes) -> Iterator[bytes]:
    """Pieces until far more than the limit has come."""
    return (piece for _ in range(40 * LIMIT // len(piece)))


FLOODS: Final[dict[str, tuple[bytes, bytes]]] = {
    "a header without end": (OK + b"A: ", b"b" * 1000),
    "a name without end": (OK, b"b" * 1000),
    "many headers": (OK, b"A: b\r\n"),
    "a reason without end": (b"HTTP/1.1 200 ", b"b" * 1000),
    "early responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "empty lines": (b"", b"\r\n" * 500),
    "a trailer without end": (CHUNKED + b"0\r\nA: ", b"b" * 1000),
    "many trailers": (CHUNKED + b"0\r\n", b"A: b\r\n" * 100),
    "an extension without end": (CHUNKED + b"1;", b"b" * 1000),
    "a size without end": (CHUNKED, b"0" * 1000),
}


@pytest.mark.parametrize(("first", "piece"), FLOODS.values(), ids=FLOODS)
def test_a_flood_around_a_body_ends_the_response(first: bytes, piece: bytes) -> None:
    parser, fed = read(first), 0

    def feed() -> None:
        nonlocal fed
        for one in forever(piece):
            parser.feed(one)
            fed += len(one)

    with pytest.raises(httpx2.RemoteProtocolError):
        feed()
    assert fed <= LIMIT


def test_a_flood_in_one_piece_ends_before_it_is_kept() -> None:
    with pytest.raises(httpx2.RemoteProtocolError, match="too many headers"):
        read(OK + b"A: b\r\n" * 40_000)
    with pytest.raises(httpx2.RemoteProtocolError, match="unasked"):
        read(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000)


def test_a_long_stream_of_small_chunks_is_no_flood() -> None:
    parser = read(CHUNKED)
    for _ in range(LIMIT):
        parser.feed(b"1\r\nx\r\n")
    assert len(parser.take()) == LIMIT


def test_the_response_to_connect_has_no_body() -> None:
    for text in (OK + b"\r\n", OK + b"Content-Length: 0\r\n\r\n"):
        parser = ResponseParser(is_tunnel=True)
        parser.feed(text)
        assert (parser.is_complete, parser.is_kept) == (True, True)


def test_bytes_after_the_response_to_connect_are_noticed() -> None:
    # Attack: a proxy adds an answer of its own to its word that the way is open.
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    for feeds in ((OK + b"\r\n" + forged,), (OK + b"\r\n", forged)):
        parser = ResponseParser(is_tunnel=True)
        for one in feeds:
            parser.feed(one)
        assert not parser.is_kept
