"""One line into an object and back: nothing lost, and an id found where there is one."""

import json  # noqa: TID251  the other opinion on what a line says

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.jsonrpc.codec import (
    Malformed,
    decode,
    decode_repaired,
    encode,
    encode_value,
    recover_id,
)
from ironcurtain_proxy.model.values import Json

# Numbers around every edge that a parser could trip over.
_INTEGERS = st.one_of(
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**18, 10**19]),
    st.integers(min_value=-(10**60), max_value=10**60),
)
_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    _INTEGERS,
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
    st.from_regex(r"\A[0-9]{17,22}\Z"),
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=6,
)
_MESSAGES = st.dictionaries(_TEXT, _JSON, max_size=4)


@given(_MESSAGES)
def test_a_message_leaves_as_it_came(message: dict[str, object]) -> None:
    """Keys, order and numbers, compared with the standard library's reading of the text."""
    line = json.dumps(message, ensure_ascii=False).encode()
    decoded = decode(line)
    assert isinstance(decoded, dict)
    assert exactly(json.loads(encode(decoded))) == exactly(message)


def exactly(value: object) -> object:
    """Tells 1 from 1.0 and True, and the order of keys."""
    if isinstance(value, dict):
        return [(key, exactly(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    return type(value), value


@pytest.mark.parametrize(
    ("line", "reason", "found"),
    [
        pytest.param(b"hello", "not JSON", None, id="no JSON at all"),
        pytest.param(b'{"id":3,"x":NaN}', "not JSON", 3, id="NaN"),
        pytest.param(b'{"id":3,"x":-Infinity}', "not JSON", 3, id="Infinity"),
        pytest.param(b'{"x":"\xff","id":0}', "not UTF-8", 0, id="invalid UTF-8 before id 0"),
        pytest.param(
            b'{"x":"\\ud800","id":"a"}', "half a surrogate pair", "a", id="lone surrogate"
        ),
        pytest.param(b'{"id":4,"x":1e999}', "a number too large", 4, id="infinite number"),
        pytest.param(
            b'{"id":4,"x":' + b"1" * 5000 + b"}", "a number too large", 4, id="5000 digits"
        ),
        pytest.param(
            b'{"id":7,"x":{"id":8', "cut off in the middle", 7, id="cut off, an id inside"
        ),
        pytest.param(
            b'{"method":"id","id":9,"x":', "cut off in the middle", 9, id="a value that reads id"
        ),
        pytest.param(b'{"a":{"id":4', "cut off in the middle", None, id="only an inner id"),
        pytest.param(
            b'!{"result":{"id":5},"jsonrpc":"2.0","id":12}', "not JSON", 12, id="id at the end"
        ),
        pytest.param(
            b'!{"result":{"text":"\\"id\\":5}"},"id":12 }', "not JSON", 12, id="an id in a text"
        ),
        pytest.param(
            b'{"result":{"text":"{\\"id\\":5,',
            "cut off in the middle",
            None,
            id="an id in a cut-off text",
        ),
        pytest.param(b'{"id":1,"a":' + b"[" * 50_000, "nested too deeply", 1, id="deep, cut off"),
        pytest.param(
            b'{"id":1,"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            "nested too deeply",
            1,
            id="deep",
        ),
        pytest.param(
            b'{"id":"a\\ud800","a":1}', "half a surrogate pair", None, id="half a pair in the id"
        ),
        pytest.param(b'{"id":"a","a":"\\ud800"}', "half a surrogate pair", "a", id="half a pair"),
        pytest.param(b'{"id":true,"a":', "cut off in the middle", None, id="an id that is no id"),
    ],
)
def test_a_line_that_is_no_message_keeps_its_id(
    line: bytes, reason: str, found: int | str | None
) -> None:
    assert decode(line) == Malformed(reason, found)


@pytest.mark.parametrize("line", [b"[]", b"1", b'"x"', b"null", b'[{"id":1}]'])
def test_json_that_is_no_object_is_told_from_what_is_no_json(line: bytes) -> None:
    assert decode(line) == Malformed("not a JSON object", None, is_json=True)


def test_a_batch_keeps_the_ids_of_its_answers() -> None:
    line = (
        b'[{"id":1,"result":{}},{"id":2.0,"error":{}},{"id":3,"method":"x"},{"id":0.5,"result":1}]'
    )
    assert decode(line) == Malformed("not a JSON object", is_json=True, answered=(1, 2, 0.5))


def test_of_two_equal_keys_the_last_counts() -> None:
    assert decode(b'{"id":1,"id":2}') == {"id": 2}
    assert decode(b'{"n":12345678901234567890123,"id":1,"id":2}') == {
        "n": 12345678901234567890123,
        "id": 2,
    }


@pytest.mark.parametrize("raw", ["\u2028", "\u2029", "\x85"])
def test_no_text_holds_a_character_that_ends_a_line_for_some(raw: str) -> None:
    message = {"a": f"x{raw}y\u2026", raw: [raw]}
    line = encode(message)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == message


@given(st.text(alphabet='\\"ud83e/\u00e9\ud800\udc00x', max_size=12))
def test_a_repaired_line_is_the_line_but_for_halves(text: str) -> None:
    """The standard library reads halves; all else must be as it reads it."""
    line = json.dumps({"a": text}).encode()
    found = decode_repaired(line)
    if found is None:
        assert decode(line) == json.loads(line)
        return
    kept = json.loads(line)["a"].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert found[0]["a"].replace("\ufffd", "") == kept.replace("\ufffd", "")  # type: ignore[union-attr]


def test_what_is_no_fault_of_a_text_is_not_repaired() -> None:
    assert decode_repaired(b'{"a":"\xff","b":NaN}') is None
    assert decode_repaired(b"\xef\xbb\xbfhello") is None


def test_what_cannot_be_json_is_refused_not_changed() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode({"x": object()})


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    assert encode({"path": "a\udcff"}) == b'{"path":"a\\udcff"}\n'


@given(_MESSAGES)
def test_a_result_with_a_long_text_leaves_as_it_came(result: dict[str, Json]) -> None:
    raw = encode_value(result, has_long_text=True)
    assert raw is not None
    assert raw.count(b"\n") == 0
    assert json.loads(raw) == result
    assert list(json.loads(raw)) == list(result)
    assert decode(raw) == result


def test_a_lone_surrogate_in_a_result_is_left_to_the_slow_way() -> None:
    for is_long in (False, True):
        assert encode_value({"path": "a\udcff"}, has_long_text=is_long) is None


def test_an_id_is_found_at_either_end_of_a_line_cut_in_the_middle() -> None:
    assert recover_id(b'{"jsonrpc":"2.0","id":31,"result":{"te', b'xt"}}') == 31
    assert recover_id(b'{"result":{"te', b'xt"},"jsonrpc":"2.0","id":31}') == 31
    assert recover_id(b'{"result":{"te', b'xt","id":31}}') is None


@given(st.binary(max_size=300))
def test_no_line_whatever_raises(line: bytes) -> None:
    decode(line)
    recover_id(line, line[-20:])


@given(st.lists(st.sampled_from([b'"', b"\\", b'"id"', b":", b"5", b"{", b"}", b",", b"x"])))
def test_an_id_is_never_found_inside_a_string_or_an_inner_object(parts: list[bytes]) -> None:
    """Whatever a result holds, cut off anywhere, the id before it is the one found."""
    inner = json.dumps(b"".join(parts).decode()).encode()
    line = b'{"result":{"id":7,"text":' + inner + b'},"jsonrpc":"2.0","id":12}'
    assert recover_id(b"!" + line) == 12
    for end in range(len(line) - 4):
        assert recover_id(line[:end]) is None


@pytest.mark.parametrize("besides", [0, 10, 990, 1_000, 20_000], ids=lambda n: f"{n} besides")
@pytest.mark.parametrize("number", [123456789012345678901234567890, -(2**63) - 1, 2**64, 2**64 - 1])
def test_a_large_number_is_exact_in_a_large_line(number: int, besides: int) -> None:
    few: list[Json] = [*range(besides)]
    message: dict[str, Json] = {"a": few, "n": [{"deep": [number]}], "b": "y" * 70_000}
    read = decode(encode(message))
    assert read == message
    assert isinstance(read, dict)
    assert str(read["n"]) == str(message["n"])
