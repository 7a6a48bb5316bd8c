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
