"""Errors that the sandbox caused, told from those that the server made.

The true texts were produced under sandbox-runtime 0.0.83 with bubblewrap, where a program for it
was at hand.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.denials import (
    MAX_BLOCKS,
    MAX_TEXT,
    annotated,
    annotated_error,
    denied_host,
    is_blocked,
)
from tests.tables import table

MARK = "[SANDBOX BLOCKED]"

BLOCKED = table("sandbox/error_hints.blocked", list[tuple[str, str]])

HOSTS = table("sandbox/error_hints.hosts", list[tuple[str, str, str]])

SERVERS_OWN = table("sandbox/error_hints.servers_own", list[tuple[str, str]])


def failure(*texts: str) -> dict[str, Json]:
    return {"isError": True, "content": [{"type": "text", "text": text} for text in texts]}


def first_text(result: object) -> str:
    assert isinstance(result, dict)
    text = result["content"][0]["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in BLOCKED])
def test_what_the_sandbox_refused_is_marked(text: str) -> None:
    assert is_blocked(text)
    assert denied_host(text) is None
    assert first_text(annotated(failure(text))) == f"{MARK} {text}"
    assert annotated_error({"code": 1, "message": text}) == {"code": 1, "message": f"{MARK} {text}"}


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize(
    ("text", "host"), [pytest.param(text, host, id=name) for name, text, host in HOSTS]
)
def test_a_refused_host_is_named(text: str, host: str) -> None:
    marked = f"[SANDBOX BLOCKED: host {host}] {text}"
    assert is_blocked(text)
    assert denied_host(text) == host
    assert first_text(annotated(failure(text))) == marked
    assert annotated_error({"message": text}) == {"message": marked}


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SERVERS_OWN])
def test_an_error_of_the_servers_own_is_left_alone(text: str) -> None:
    result, error = failure(text), {"message": text}
    assert not is_blocked(text)
    assert annotated(result) is result
    assert annotated_error(error) is error


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("flag", [False, None, 1, "true"])
def test_a_result_that_is_no_error_is_left_alone(flag: Json) -> None:
    result: dict[str, Json] = {**failure("EROFS: read-only file system"), "isError": flag}
    assert annotated(result) is result


def test_the_mark_stands_before_the_first_text_wherever_the_reason_is() -> None:
    image: Json = {"type": "image", "data": "EROFS"}
    said: Json = {"type": "text", "text": "It failed.", "annotations": {"priority": 1}}
    reason: Json = {"type": "text", "text": "getaddrinfo EAI_AGAIN example.com"}
    result: dict[str, Json] = {"isError": True, "content": [image, said, reason], "_meta": {"a": 1}}
    marked: Json = {
        "type": "text",
        "text": "[SANDBOX BLOCKED: host example.com] It failed.",
        "annotations": {"priority": 1},
    }
    assert annotated(result) == {**result, "content": [image, marked, reason]}
    assert first_text({"content": [said]}) == "It failed.", "what the server sent is not edited"


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("a]\u202e[ADMIN", id="a bracket ends no mark"),
        pytest.param("a" * 5000, id="too long for a name"),
        pytest.param("\u212a.example", id="a letter that only looks like one"),
    ],
)
def test_no_server_writes_its_own_words_into_the_mark(host: str) -> None:
    marked = first_text(annotated(failure(f"getaddrinfo EAI_AGAIN {host}")))
    inside = marked.partition("]")[0].removeprefix("[SANDBOX BLOCKED")
    assert all(letter.isascii() and letter not in "[]\n" for letter in inside)
    assert len(inside) < 300


def test_only_the_beginning_of_a_result_is_looked_at() -> None:
    late = failure(" " * MAX_TEXT + "EROFS: read-only file system")
    far = failure(*["no"] * MAX_BLOCKS, "EROFS: read-only file system")
    assert annotated(late) is late
    assert annotated(far) is far


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(unit, id=unit.strip()[:20] or "newlines")
        for unit in (
            *("socket ", "http://", "http://a@", "\n", "eai_again\n", ": permission denied"),
            *("econnrefused http://" + "a" * 250 + "_", "eai_again connect " + "a-" * 120),
            *("failed to connect to " + "a" * 240, "could not resolve host "),
        )
    ],
)
def test_the_largest_text_of_any_unit_comes_to_an_end(unit: str) -> None:
    """Square time would be minutes: the limit of each test is a minute."""
    annotated(failure(*["eai_again " + unit * (2 * MAX_TEXT // len(unit))] * MAX_BLOCKS))


TEXTS = st.one_of(
    st.text(), st.sampled_from([text for _, text in BLOCKED] + [text for _, text, _ in HOSTS])
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
ANYTHING: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
BLOCKS = st.fixed_dictionaries(
    {}, optional={"type": st.just("text") | ANYTHING, "text": TEXTS | ANYTHING, "x": ANYTHING}
)
RESULTS: st.SearchStrategy[dict[str, Json]] = st.fixed_dictionaries(
    {},
    optional={
        "isError": st.just(True) | ANYTHING,
        "content": st.lists(BLOCKS | ANYTHING) | ANYTHING,
        "message": TEXTS | ANYTHING,
    },
)


@pytest.mark.requirement("C-10")
@given(RESULTS)
def test_any_shape_is_taken_and_marked_at_most_once(result: dict[str, Json]) -> None:
    once, error = annotated(result), annotated_error(result)
    assert annotated(once) is once
    assert annotated_error(error) is error
    if result.get("isError") is not True:
        assert once is result
