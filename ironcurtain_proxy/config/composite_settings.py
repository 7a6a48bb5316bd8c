"""Tools that the operator put together out of others: section `composites`."""

import re
from typing import Final

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.model.composite import MAX_STEPS, CompositeSpec, CompositeStep
from ironcurtain_proxy.model.json import Json

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


def read_composites(layers: Layers) -> tuple[CompositeSpec, ...]:
    """The section, in the order in which it was written."""
    return layers.read("composites", _composites, ())


def _composites(spot: Spot) -> tuple[CompositeSpec, ...]:
    entries = {name: entry for name, entry in spot.members().items() if not name.startswith("_")}
    return tuple([_composite(name, entry) for name, entry in entries.items()])


def _composite(name: str, spot: Spot) -> CompositeSpec:
    if _NAME.fullmatch(name) is None:
        spot.error("a name has 1 to 64 lower-case letters, digits, `_` or `-`")
    members = spot.object(("description", "steps"))
    steps = members.required("steps")
    if isinstance(steps.value, list) and not 1 <= len(steps.value) <= MAX_STEPS:
        steps.error(f"must be 1 to {MAX_STEPS} steps")
    return CompositeSpec(
        name=name,
        description=members.read("description", Spot.text, ""),
        steps=steps.each(_step),
    )


def _step(spot: Spot) -> CompositeStep:
    members = spot.object(("tool", "arguments"))
    return CompositeStep(members.required("tool").name(), members.read("arguments", _arguments, {}))


def _arguments(spot: Spot) -> dict[str, Json]:
    return {name: inner.value for name, inner in spot.members().items()}
