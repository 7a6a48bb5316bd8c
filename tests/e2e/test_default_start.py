"""A proxy that nobody switched anything on in imports none of what is off by default."""

import re
import sys

from tests.e2e.installation import Installation

OFF = {"auto_confirm", "auto_approver", "llm"}

HEAVY = {
    *("mcp", "mcp_types", "pydantic", "pydantic_core", "starlette", "uvicorn", "httpx"),
    *("litellm", "openai", "sqlalchemy", "alembic", "textual", "rich", "tree_sitter", "yaml"),
    *("multiprocessing", "concurrent.futures.process"),
}
"""Modules that take milliseconds each, and that no call of a default installation needs."""


def test_a_default_start_and_its_calls_import_nothing_that_is_off(scripted: Installation) -> None:
    imported = imports_of_a_session(scripted)
    ours = {name.split(".")[1] for name in imported if name.startswith("ironcurtain_proxy.")}
    assert {"mediation", "decision", "downstream", "review"} <= ours
    assert ours & OFF == set()


def test_a_default_start_and_its_calls_import_nothing_heavy(scripted: Installation) -> None:
    imported = imports_of_a_session(scripted)
    assert "orjson" in imported
    assert imported & HEAVY == set()


def imports_of_a_session(scripted: Installation) -> set[str]:
    """The modules that a proxy has imported after a call that is allowed and one that is not."""
    # The interpreter tells of each import on standard error.
    scripted.command = [sys.executable, "-X", "importtime", "-m", "ironcurtain_proxy"]
    agent = scripted.start()
    agent.call("answer", {"text": "x"})
    agent.call("ask", {"text": "x"})
    agent.close()
    told = agent.errors.read_text(encoding="utf-8")
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", told, re.MULTILINE))


def test_a_start_does_not_write_into_the_configuration(scripted: Installation) -> None:
    directory = scripted.home / ".ironcurtain"
    directory.mkdir(exist_ok=True)
    file = directory / "config.json"
    text = '{"security": {"interceptor": {"approvalRequired": true}}}'
    file.write_text(text)
    agent = scripted.start()
    agent.call("answer", {"text": "x"})
    agent.close()
    assert file.read_text() == text
    assert list(directory.glob("config.json?*")) == []
    assert "ironcurtain-proxy config migrate" in agent.errors.read_text(encoding="utf-8")
