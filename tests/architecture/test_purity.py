"""The pure modules do no I/O: shown once by what they import, once by what they do."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import grimp
import pytest
from hypothesis import HealthCheck, given, settings

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest
from tests.architecture.no_io import IOAttemptedError, no_io
from tests.examples import examples
from tests.program import PATIENCE
from tests.strategies import policies, requests

ROOT: Final = Path(__file__).parents[2]
STRICT: Final = (
    "errors",
    "model",
    "decision",
    "approval",
    "mediation.judge",
    "shell.outward",
    "shell.operations",
    "shell.effects",
    "shell.readers",
    "shell.grammar",
    "shell.places",
    "shell.wrappers",
    "grants.book",
    "grants.grant_settlement",
    "grants.patterns",
    "mediation.question",
    "auto_confirm.engine",
    "auto_approver.intent",
    "auto_approver.target_call",
    "auto_approver.target_check",
    "auto_approver.target_command",
    "auto_approver.target_message",
)
"""What decides, and what judges: nothing outside is imported but `ALLOWED_IMPORTS`.

`pyproject.toml` has the longer list of modules that do no I/O.
"""

ALLOWED_IMPORTS: Final = frozenset(
    {
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "ipaddress",  # values of addresses
        "itertools",
        "math",
        "msgspec",  # frozen values; what it reads and writes is bytes
        "operator",
        "pydantic_core",  # regular expressions in linear time, and no file or clock
        "re",
        "types",
        "typing",
        "unicodedata",  # tables of characters
        "urllib",  # `urllib.parse`: what opens a URL imports `http`, which a contract forbids
    }
)
"""An allowlist, so that a module no one thought of is refused."""


def test_what_decides_imports_only_harmless_modules() -> None:
    graph = grimp.build_graph("ironcurtain_proxy", include_external_packages=True, cache_dir=None)
    outside = {
        (module, imported)
        for module in graph.modules
        if _is_in(module, STRICT)
        for imported in graph.find_modules_directly_imported_by(module)
        if not imported.startswith("ironcurtain_proxy.") and imported not in ALLOWED_IMPORTS
    }
    assert outside == set()


def _is_in(module: str, names: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"ironcurtain_proxy.{name}.") for name in names)


def test_what_decides_is_among_the_modules_that_do_no_io() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (pure,) = [one for one in contracts["contracts"] if one["id"] == "pure"]
    listed = tuple(name.removeprefix("ironcurtain_proxy.") for name in pure["source_modules"])
    assert [name for name in STRICT if not _is_in(f"ironcurtain_proxy.{name}", listed)] == []


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(requests(), policies())
def test_deciding_does_no_io(request: AccessRequest, policy: Policy) -> None:
    with no_io():
        authorize(request, policy)


def test_no_io_would_notice() -> None:
    with pytest.raises(IOAttemptedError), no_io():
        Path(__file__).read_text(encoding="utf-8")


LATE = """
import sys
import tests.architecture.no_io as module

class Late:
    def __del__(self, audit=sys.audit, module=module):
        audit("open")

sys._kept = Late()
"""


def test_no_io_is_silent_when_the_interpreter_has_emptied_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], cwd=ROOT, capture_output=True, timeout=PATIENCE, check=True
    )
    assert done.stderr == b""
