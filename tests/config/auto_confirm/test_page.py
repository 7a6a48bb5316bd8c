"""The examples of the engine's page are what the reader of the configuration takes."""

import re
from pathlib import Path

import pytest

from ironcurtain_proxy.config.settings import load_settings

PAGE = (Path(__file__).parents[3] / "docs/auto-confirm.md").read_text("utf-8")
BLOCKS = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)


def blocks(beginning: str) -> list[str]:
    plain = [re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") for block in BLOCKS]
    return [block for block in plain if block.startswith(beginning)]


def settings_of(text: str, home: Path) -> None:
    file = home / "config.yaml"
    file.write_text(text)
    load_settings({"HOME": str(home), "PATH": "/bin", "IRONCURTAIN_CONFIG": str(file)})


def test_the_whole_example_is_read(tmp_path: Path) -> None:
    (example,) = blocks("auto_confirm:")
    settings_of(example, tmp_path)


@pytest.mark.parametrize("reviewer", blocks("- name:"))
def test_a_reviewer_of_the_page_is_read(reviewer: str, tmp_path: Path) -> None:
    listed = "\n".join(f"    {line}" for line in reviewer.splitlines())
    settings_of(f"auto_confirm:\n  enabled: true\n  reviewers:\n{listed}\n", tmp_path)


def test_the_page_has_examples_of_reviewers() -> None:
    assert len(blocks("- name:")) >= 2
