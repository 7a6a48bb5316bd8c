"""Signs of life of a call that waits for its approval."""

from collections.abc import Mapping

import pytest

from ironcurtain_proxy.mediation.escalated import pulse
from ironcurtain_proxy.model.values import Json

pytestmark = pytest.mark.anyio


async def test_a_client_that_gave_a_token_is_told_how_long_it_waits() -> None:
    told: list[Mapping[str, Json]] = []

    async def tell(params: Mapping[str, Json]) -> None:
        told.append(params)

    beat = pulse({"_meta": {"progressToken": "t"}}, tell)
    assert beat is not None
    await beat(5.0)
    await beat(10.0)
    assert [one["progressToken"] for one in told] == ["t", "t"]
    # Progress must grow, and leave the server its own.
    assert 0 < float(str(told[0]["progress"])) < float(str(told[1]["progress"])) < 0.001


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": "t"}, {"_meta": None}])
async def test_a_client_that_gave_none_is_told_nothing(params: Mapping[str, Json]) -> None:
    async def tell(_: Mapping[str, Json]) -> None:
        raise AssertionError

    assert pulse(params, tell) is None
    assert pulse({"_meta": {"progressToken": "t"}}, None) is None
