"""The page of messages and the code say the same: no message of the page is gone from the code,
and none that an agent or a reviewer meets is missing on the page."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from ironcurtain_proxy.agent import replies
from ironcurtain_proxy.config.settings import EscalationMode
from ironcurtain_proxy.web.guard import _CLOSED, _FOREIGN
from tests.source import PACKAGE, nodes, one_worker

pytestmark = one_worker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
NO_REFUSALS = {"policy-roots", "scenario"}
"""Names that stand in reports and labels, and that nobody reads as a message."""


def messages_of_the_page() -> list[str]:
    text = re.sub(r"\s+", " ", PAGE)
    return [found for found in re.findall(r"\*\*`(.+?)`\*\*", text) if found.strip("… ")]


def texts_of_modules() -> Iterator[str]:
    """Every text of the package; a part that is filled in is a line end."""
    yield from (one.value for _, one in nodes(ast.Constant) if isinstance(one.value, str))
    for _, one in nodes(ast.JoinedStr):
        yield "".join(
            [str(part.value) if isinstance(part, ast.Constant) else "\n" for part in one.values]
        )


@cache
def texts() -> str:
    """All texts of the program, with a null character between two."""
    return "\0".join(
        [
            *{*texts_of_modules()},
            *(file.read_text("utf-8") for file in PACKAGE.glob("web/static/*.js")),
            (PACKAGE / "agent/texts.json").read_text("utf-8"),
        ]
    )


@pytest.mark.parametrize("message", messages_of_the_page())
def test_every_message_of_the_page_is_one_of_the_program(message: str) -> None:
    parts = [part.strip() for part in message.split("…") if part.strip(" .;:")]
    assert re.search("[^\0]*".join(map(re.escape, parts)), texts()), message


def test_a_value_of_a_setting_is_one_that_it_takes() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        text = re.sub(r"\s+", " ", page.read_text("utf-8"))
        for value in re.findall(r"`escalation\.mode`(?:\]\([^)]*\))? is `(\w+)`", text):
            assert value in get_args(EscalationMode), (page.name, value)


def rules_of_the_code() -> set[str]:
    """The names of rules that the code itself writes: the first argument of `Ground`."""
    found: set[str] = set()
    values: list[tuple[Path, ast.AnnAssign | ast.Assign]]
    values = [*nodes(ast.AnnAssign), *nodes(ast.Assign)]
    names = {
        (module, target.id): one.value.value
        for module, one in values
        if isinstance(one.value, ast.Constant)
        for target in ([one.target] if isinstance(one, ast.AnnAssign) else one.targets)
        if isinstance(target, ast.Name) and isinstance(one.value.value, str)
    }
    for module, call in nodes(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "Ground" and call.args:
            rule = call.args[0]
            if isinstance(rule, ast.Constant):
                found.add(str(rule.value))
            elif isinstance(rule, ast.JoinedStr) and isinstance(rule.values[0], ast.Constant):
                found.add(str(rule.values[0].value))
            elif isinstance(rule, ast.Name) and (module, rule.id) in names:
                found.add(names[module, rule.id])
    return {rule for rule in found if rule} - NO_REFUSALS


def test_every_rule_of_the_code_stands_on_the_page() -> None:
    listed = {
        rule
        for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
        for rule in re.findall(r"`(.+?)`", row)
    }
    families = [rule.removesuffix("…") for rule in listed if rule.endswith("…")]
    code = rules_of_the_code()
    assert len(code) > 20
    missing = {rule for rule in code - listed if not rule.startswith(tuple(families))}
    assert missing == set()
    gone = {rule for rule in listed if not rule.endswith("…")} - code
    assert gone - set(texts().split("\0")) == set()


def test_every_refusal_that_an_agent_reads_stands_on_the_page() -> None:
    page = re.sub(r"\s+", " ", PAGE)
    for blocks in replies.REFUSALS.values():
        for block in blocks[:1]:
            fixed = max(re.split(r"\{\w+\}", block), key=len).strip(" '…")
            assert fixed in page, block


def test_every_problem_of_the_page_in_the_browser_stands_on_the_page() -> None:
    page = re.sub(r"\s+", " ", PAGE)
    for words in (_FOREIGN, _CLOSED):
        assert words in page
