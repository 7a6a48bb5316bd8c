"""Members are inserted into a text that otherwise stays as it is."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.config.migration import Insertion, inserted
from ironcurtain_proxy.model.values import Json
from tests.tables import table

MODE = Insertion(("security", "interceptor"), "approvalPolicy", "configured")
OFF = Insertion((), "autoApprove", {"enabled": False})


def test_the_layout_of_the_object_is_taken_up() -> None:
    text = b'{\r\n\t"security": {\r\n\t\t"interceptor": {\r\n\t\t\t"enabled": true }}}\r\n'
    assert inserted(text, [MODE, OFF]) == (
        b'{\r\n\t"autoApprove": {"enabled": false},\r\n\t"security": {\r\n\t\t"interceptor": {'
        b'\r\n\t\t\t"approvalPolicy": "configured",\r\n\t\t\t"enabled": true }}}\r\n'
    )


def test_what_stands_on_one_line_stays_on_one_line() -> None:
    text = b'{"security": {"interceptor": {"enabled": true}}}'
    assert inserted(text, [MODE]) == (
        b'{"security": {"interceptor": {"approvalPolicy": "configured", "enabled": true}}}'
    )


def test_an_empty_object_is_filled() -> None:
    assert inserted(b"{ }", [OFF]) == b'{\n  "autoApprove": {"enabled": false}\n}'


@pytest.mark.parametrize(
    "before",
    [
        '{"_": "security", "interceptor": {"x": 1}, "security": {"interceptor": {"y": 2}}}',
        '{"_": ["security", {"interceptor": {"x": 1}}], "security": {"interceptor": {"y": 2}}}',
        '{"_": {"security": {"interceptor": {}}}, "security": {"_": 1, "interceptor": {"y": 2}}}',
        '{"_": "\\"security\\": {\\"interceptor\\": {", "security": {"interceptor": {"y": 2}}}',
        '{"sec\\u0075rity" : { "interceptor" :\n{"y": 2}}}',
        '\N{ZERO WIDTH NO-BREAK SPACE}{"security": {"interceptor": {"y": [{}, "{"]}}}',
    ],
)
def test_the_object_is_found_wherever_it_stands(before: str) -> None:
    after = inserted(before.encode(), [MODE])
    assert after is not None
    wanted = orjson.loads(before.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))
    wanted["security"]["interceptor"]["approvalPolicy"] = "configured"
    assert orjson.loads(after.decode().removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")) == wanted


@pytest.mark.parametrize(
    "before",
    table("config/migration/json_insertion.where_it_does_not_fit", list[str]),
)
def test_where_it_does_not_fit_nothing_is_inserted(before: str) -> None:
    assert inserted(before.encode(), [MODE]) is None


def test_what_is_not_utf_8_is_left_alone() -> None:
    assert inserted(b'{"a": "\xff"}', [OFF]) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["security", "interceptor", "", "x"]) | st.text(), JSON)


@given(OBJECTS, OBJECTS, OBJECTS, st.sampled_from([0, orjson.OPT_INDENT_2]))
def test_whatever_the_text_says_it_says_afterwards(
    top: dict[str, Json], middle: dict[str, Json], inner: dict[str, Json], layout: int
) -> None:
    said: dict[str, Json] = {**top, "security": {**middle, "interceptor": inner}}
    after = inserted(orjson.dumps(said, option=layout), [MODE, OFF])
    if "approvalPolicy" in inner or "autoApprove" in top:
        assert after is None
    else:
        assert after is not None
        wanted = {**inner, "approvalPolicy": "configured"}
        assert orjson.loads(after) == {
            **said,
            "autoApprove": {"enabled": False},
            "security": {**middle, "interceptor": wanted},
        }
