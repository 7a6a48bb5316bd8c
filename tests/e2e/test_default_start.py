"""A proxy that nobody switched anything on in imports none of what is off by default."""

import re
import sys

from tests.e2e.installation import Installation

OFF = {"auto_confirm", "auto_approver", "llm"}


def test_a_default_start_and_its_calls_import_nothing_that_is_off(scripted: Installation) -> None:
    # The interpreter tells of each import on standard error.
    scripted.command = [sys.executable, "-X", "importtime", "-m", "ironcurtain_proxy"]
    agent = scripted.start()
    agent.call("answer", {"text": "x"})
    agent.call("ask", {"text": "x"})
    agent.close()
    told = agent.errors.read_text(encoding="utf-8")
    imported = set(re.findall(r"\| +ironcurtain_proxy\.(\w+)", told))
    assert {"mediation", "decision", "downstream", "review"} <= imported
    assert imported & OFF == set()


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
