"""The pure rooms do no I/O: shown once by what they import, once by what they do."""

from pathlib import Path
from typing import Final

import grimp
import pytest
from hypothesis import HealthCheck, given, settings

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest
from tests.architecture.no_io import IOAttemptedError, no_io
from tests.strategies import policies, requests

PURE: Final = frozenset({"model", "decision", "approval", "errors"})

ALLOWED_IMPORTS: Final = frozenset(
    {
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "itertools",
        "math",
        "operator",
        "re",
        "types",
        "typing",
    }
)
"""An allowlist, so that a module no one thought of is refused."""


def test_pure_rooms_import_only_harmless_modules() -> None:
    graph = grimp.build_graph("ironcurtain_proxy", include_external_packages=True, cache_dir=None)
    outside = {
        (module, imported)
        for module in graph.modules
        if module.startswith("ironcurtain_proxy.") and module.split(".")[1] in PURE
        for imported in graph.find_modules_directly_imported_by(module)
        if not imported.startswith("ironcurtain_proxy.") and imported not in ALLOWED_IMPORTS
    }
    assert outside == set()


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(requests(), policies())
def test_deciding_does_no_io(request: AccessRequest, policy: Policy) -> None:
    with no_io():
        authorize(request, policy)


def test_no_io_would_notice() -> None:
    with pytest.raises(IOAttemptedError), no_io():
        Path(__file__).read_text(encoding="utf-8")
