"""The example files and tables of the documents: what they show is what the program reads."""

import re
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, level_of
from ironcurtain_proxy.config.overlay_settings import OverlaySettings
from ironcurtain_proxy.config.settings import KEYS, load_settings
from ironcurtain_proxy.model.annotation import CAPABILITIES, SafetyLevel
from tests import program
from tests.program import PROXY

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.json"))
EXAMPLE = ROOT / "docs/examples/config.json"
CONFIGURATION = ROOT / "docs/configuration.md"


def rows(document: Path, heading: str) -> list[list[str]]:
    """The cells of all tables of a section, without the backquotes."""
    section = document.read_text(encoding="utf-8").split(f"\n{heading}\n")[1]
    section = re.split(r"\n#+ ", section)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def workspace(tmp_path: Path) -> dict[str, str]:
    """The directory of the example is its reader's: here is another."""
    directory = tmp_path / "project"
    directory.mkdir()
    return {"ALLOWED_DIRECTORY": str(directory)}


@pytest.mark.requirement("E-31")
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_has_no_problems(file: Path, tmp_path: Path) -> None:
    done = program.run(
        [*PROXY, "check", "--json", "--config", str(file)],
        {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **workspace(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    problems = orjson.loads(done.stdout)["problems"]
    assert [problem for problem in problems if problem["source"] == str(file)] == []


@pytest.mark.requirement("E-31")
def test_the_example_shows_the_interceptor_with_its_defaults(tmp_path: Path) -> None:
    section = orjson.loads(EXAMPLE.read_bytes())["security"]["interceptor"]
    assert section["approvalPolicy"] == "dangerous"
    assert section["exemptTools"] == []
    environ = {"HOME": str(tmp_path), **workspace(tmp_path)}
    assert load_settings(environ, EXAMPLE).overlay == OverlaySettings()


@pytest.mark.requirement("D-35")
def test_the_narrow_tools_of_the_examples_need_less_than_a_shell(tmp_path: Path) -> None:
    file = ROOT / "docs/examples/capabilities.json"
    said = load_settings({"HOME": str(tmp_path)}, file).overlay.capabilities
    shell = said.declarations["project/run_shell"]
    assert shell.command_argument == "command"
    assert shell.safety_level == SafetyLevel.DANGEROUS
    for narrow in ("git/git_status", "project/run_tests"):
        declared = said.declarations[narrow]
        assert set(declared.capabilities) < set(shell.capabilities)
        assert declared.command_argument is None
        assert (declared.safety_level or 0) < SafetyLevel.DANGEROUS


@pytest.mark.requirement("D-35")
def test_what_the_examples_let_run_without_a_question_is_narrow() -> None:
    example = orjson.loads((ROOT / "docs/examples/capabilities.json").read_bytes())
    profiles = example["capabilities"]["profiles"].values()
    preferred = [
        *(step["tool"] for one in example["composites"].values() for step in one["steps"]),
        *(tool for profile in profiles for tool in profile["preApprovedTools"]),
        *example["security"]["interceptor"]["exemptTools"],
    ]
    tools = example["capabilities"]["tools"]
    shells = {name for name, one in tools.items() if "commandArgument" in one}
    assert shells == {"project/run_shell"}
    assert preferred
    assert shells & {tool.replace("__", "/") for tool in preferred} == set()
    assert shells <= set(example["security"]["interceptor"]["sensitiveTools"])


@pytest.mark.requirement("E-32", "E-33")
def test_the_readme_s_security_table_lists_the_policy_and_the_exempt_tools() -> None:
    table = rows(ROOT / "README.md", "### Security")
    by_key = {row[0]: row[1:] for row in table}
    prefix = "`security.interceptor."
    policy = by_key[f"{prefix}approvalPolicy`"]
    assert policy[:2] == ["`string`", "`dangerous`"]
    after = table[[row[0] for row in table].index(f"{prefix}approvalPolicy`") + 1 :]
    described = {row[2]: row[3] for row in after[:4] if row[:2] == ["", ""]}
    assert set(described) == {"`dangerous`", "`all`", "`configured`", "`none`"}
    assert all(described.values())
    assert by_key[f"{prefix}exemptTools`"][:2] == ["`[]string`", "`[]`"]
    assert by_key[f"{prefix}sensitiveTools`"][:2] == ["`[]string`", "`[]`"]
    assert "(deprecated)" in by_key[f"{prefix}approvalRequired`"][2]


def test_every_key_of_the_interceptor_is_documented() -> None:
    documented = {row[0].strip("`") for row in rows(CONFIGURATION, "## Tools that are asked about")}
    section = "security.interceptor."
    assert {key.removeprefix(section) for key in KEYS if key.startswith(section)} <= documented


def test_every_key_of_the_new_sections_is_documented() -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    keys = [key for key in KEYS if key.startswith(("capabilities.", "grants."))]
    assert [key for key in keys if f"`{key}`" not in text] == []


@pytest.mark.requirement("D-36", "D-37", "D-38", "D-39", "D-41", "D-42")
def test_the_table_of_capabilities_says_what_the_profiles_say() -> None:
    table = {row[0].strip("`"): row[1:] for row in rows(CONFIGURATION, "## Capabilities")}
    for name, words in CAPABILITIES.items():
        levels = [level_of(name, AUTONOMOUS), level_of(name, SUPERVISED)]
        assert table[name] == [words, *levels]
