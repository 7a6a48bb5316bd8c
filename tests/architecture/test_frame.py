"""What stands around the code: documents, pictures, the lock, the metadata."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import ironcurtain_proxy

ROOT = Path(__file__).parents[2]
IN_CODE = re.compile(r"# \(([0-9]+)\) ([A-Z][a-z ]+):")
IN_TEXT = re.compile(r"^([0-9]+)\. \*\*([A-Z][a-z ]+)\*\*:", re.MULTILINE)
LONGEST_LIFE = 335
"""Lines: the life of a call is read in one sitting."""


def _section(document: Path, title: str) -> str:
    return document.read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_life_of_a_call_has_the_same_steps_everywhere() -> None:
    code = (ROOT / "ironcurtain_proxy" / "mediation" / "mediator.py").read_text("utf-8")
    steps = IN_CODE.findall(code)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) > 1
    assert IN_TEXT.findall(_section(ROOT / "docs/theory.md", "The life of a tool call")) == steps
    told = _section(ROOT / "docs" / "architecture.md", "The life of a call")
    assert IN_TEXT.findall(told) == steps
    assert len(code.splitlines()) <= LONGEST_LIFE


def test_the_picture_of_the_folders_is_what_the_import_graph_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "pictures.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def _locked() -> Iterator[str]:
    for package in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]:
        yield package["name"]


@pytest.mark.requirement("T-1")
@pytest.mark.requirement("T-2")
@pytest.mark.requirement("T-3")
@pytest.mark.requirement("T-30")
def test_the_suites_of_others_are_run_and_named_in_the_document() -> None:
    """Too long for a test: continuous integration runs the first, a person the others."""
    integration = (ROOT / ".ci/run").read_text("utf-8")
    sides = set(re.findall(r"for side in (.*); do\n.*\n.*scripts/conformance --check", integration))
    assert sides == {"server client modern-server modern-client"}
    document = (ROOT / "docs/protocol.md").read_text("utf-8")
    suites = ("run", "interaction.py", "fastmcp_suite.py", "generated.py")
    for name in [f"scripts/eras/{one}" for one in suites]:
        assert (ROOT / name).exists()
        assert f"`{name}`" in document


def test_the_lock_names_public_addresses_alone() -> None:
    text = (ROOT / "uv.lock").read_text("utf-8")
    hosts = {urlsplit(found).hostname for found in re.findall(r'"([a-z]+://[^"]+)"', text)}
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_every_locked_file_has_a_hash() -> None:
    text = (ROOT / "uv.lock").read_text("utf-8")
    assert len(re.findall(r"\burl = ", text)) == len(
        re.findall(r'hash = "sha256:[0-9a-f]{64}"', text)
    )


def test_the_lock_holds_every_declared_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = {
        re.split(r"[<>=\[; ]", text)[0].lower()
        for text in (*project["dependencies"], *(text for extra in extras for text in extra))
    }
    assert wanted <= set(_locked())


def test_the_newest_version_of_the_changelog_is_the_installed_one() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## \[([0-9.]+)\]", changes, re.MULTILINE)[0] == version(
        "ironcurtain-proxy"
    )
    assert version("ironcurtain-proxy") == ironcurtain_proxy.__version__
