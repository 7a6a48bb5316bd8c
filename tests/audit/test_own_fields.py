"""Further fields of a record: what we wrote is written as it is, what others wrote is searched."""

from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.audit import bounding
from ironcurtain_proxy.audit.bounding import shape_value
from ironcurtain_proxy.audit.records import RecordEncoder
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED
from ironcurtain_proxy.auto_confirm.reviewer import _details
from ironcurtain_proxy.model.reply import OwnField
from ironcurtain_proxy.model.values import Json
from tests.audit.specimens import SECRETS, record

KEY = "AKIAIOSFODNN7EXAMPLE"


def written(*context: tuple[str, Json]) -> dict[str, Json]:
    fields: dict[str, Json] = orjson.loads(
        RecordEncoder(redaction=True).encode(record(changes={"context": context}))
    )
    return fields


def test_a_field_that_we_wrote_is_not_searched_for_secrets() -> None:
    said: Json = {"reason": f"rule {KEY}", "rows": ["password: hunter2hunter2"]}
    assert written(OwnField("engine", said))["engine"] == said


def test_a_field_of_others_is_searched_although_ours_of_the_same_name_came_before() -> None:
    assert KEY not in str(written(OwnField("engine", "ours"), ("engine", f"theirs: {KEY}")))


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_in_a_field_of_others_is_masked_however_deep_it_stands(secret: str) -> None:
    places: Sequence[Json] = (secret, [secret], {"a": [{"b": secret}]}, {secret: 1})
    for place in places:
        assert secret not in orjson.dumps(written(("note", place))).decode()


def test_what_the_engine_says_of_a_decision_is_ours() -> None:
    assert all(isinstance(field, OwnField) for field in _details(UNDECIDED))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.sampled_from([*SECRETS.values(), "password", "--token", "name", "value", "ssn"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["password", "name", "value", "ssn", "key"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_the_fast_way_writes_what_the_slow_way_writes(value: Json) -> None:
    slow = bounding._Shaper(redaction=True).value(value, 0)
    assert orjson.dumps(shape_value(value, redaction=True)) == orjson.dumps(slow)
