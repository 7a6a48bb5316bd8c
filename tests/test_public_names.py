"""What a program imports from the package: there, typed, and not loaded before it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ironcurtain_proxy
from tests import typed_names

NAMES = {
    "Approved",
    "Candidate",
    "Declined",
    "Escalation",
    "EscalationInbox",
    "IronCurtainError",
    "Settings",
    "ToolCallRequest",
    "ToolCallResponse",
    "TrustedProcess",
}


def child(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(ironcurtain_proxy.__all__) == NAMES
    assert set(dir(ironcurtain_proxy)) >= NAMES
    assert NAMES == {name for name in NAMES if isinstance(getattr(ironcurtain_proxy, name), type)}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ironcurtain_proxy.Nothing


def test_each_name_is_the_class_that_the_package_itself_uses() -> None:
    from ironcurtain_proxy.model.escalation import Approved  # noqa: PLC0415
    from ironcurtain_proxy.trusted_process import TrustedProcess  # noqa: PLC0415

    assert ironcurtain_proxy.Approved is Approved
    assert ironcurtain_proxy.TrustedProcess is TrustedProcess


def test_the_package_alone_imports_its_version_and_no_other_module_or_library() -> None:
    loaded = child(
        "import sys; before = set(sys.modules)\n"
        "import ironcurtain_proxy\n"
        "print(*sorted(set(sys.modules) - before))"
    ).split()
    assert [name for name in loaded if name.startswith("ironcurtain_proxy.")] == [
        "ironcurtain_proxy.version"
    ]
    installed = {"anyio", "mcp", "mcp_types", "orjson", "pydantic", "litellm"}
    assert installed.isdisjoint(loaded)


@pytest.mark.parametrize("name", ["Approved", "IronCurtainError", "Settings"])
def test_a_value_type_loads_no_transport(name: str) -> None:
    loaded = child(f"import sys\nfrom ironcurtain_proxy import {name}\nprint(*sys.modules)").split()
    assert {"mcp", "anyio", "litellm", "sqlalchemy"}.isdisjoint(loaded)


def test_a_type_checker_is_told_that_the_names_are_typed() -> None:
    """What it then knows of each is in `typed_names`, which scripts/check reads."""
    assert (Path(ironcurtain_proxy.__file__).parent / "py.typed").is_file()
    imported = ast.parse(Path(typed_names.__file__).read_text()).body
    (names,) = [one for one in imported if getattr(one, "module", "") == "ironcurtain_proxy"]
    assert isinstance(names, ast.ImportFrom)
    assert {alias.name for alias in names.names} == NAMES
