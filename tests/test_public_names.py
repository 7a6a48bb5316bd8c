"""What a program imports from the package: there, typed, and not loaded before it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import ironcurtain_proxy

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

TYPED = """
from typing import assert_type

from ironcurtain_proxy import (
    Approved,
    Candidate,
    Declined,
    Escalation,
    EscalationInbox,
    IronCurtainError,
    Settings,
    ToolCallRequest,
    ToolCallResponse,
    TrustedProcess,
)


def ask(escalation: Escalation) -> Approved | Declined:
    if escalation.candidates:
        assert_type(escalation.candidates[0].description, str)
        offered: Candidate = escalation.candidates[0]
        return Approved(remember=offered)
    return Declined(note="not now")


async def main(inbox: EscalationInbox) -> None:
    async with TrustedProcess(Settings.from_environment(), on_escalation=ask) as kernel:
        answer = await kernel.call_tool("files", "read_file", {"path": "notes.txt"})
        assert_type(answer, ToolCallResponse)
        assert_type(answer.rule, str)
        await kernel.handle_tool_call(ToolCallRequest(server="files", tool="read_file"))
        assert_type([tool.tool for tool in await kernel.list_tools()], list[str])
    for pending in inbox.pending():
        assert_type(await inbox.approve(pending.id, remember=pending.candidates[0]), bool)
    raise IronCurtainError("none of these is a loose object")
"""


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


def test_the_package_alone_imports_none_of_its_modules_and_no_library() -> None:
    loaded = child(
        "import sys; before = set(sys.modules)\n"
        "import ironcurtain_proxy\n"
        "print(*sorted(set(sys.modules) - before))"
    ).split()
    assert [name for name in loaded if name.startswith("ironcurtain_proxy.")] == []
    installed = {"anyio", "mcp", "mcp_types", "orjson", "pydantic", "litellm"}
    assert installed.isdisjoint(loaded)


@pytest.mark.parametrize("name", ["Approved", "IronCurtainError", "Settings"])
def test_a_value_type_loads_no_transport(name: str) -> None:
    loaded = child(f"import sys\nfrom ironcurtain_proxy import {name}\nprint(*sys.modules)").split()
    assert {"mcp", "anyio", "litellm", "sqlalchemy"}.isdisjoint(loaded)


def test_a_type_checker_knows_every_name(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
            *("--cache-dir", str(Path(ironcurtain_proxy.__file__).parents[1] / ".mypy_cache")),
            str(program),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
