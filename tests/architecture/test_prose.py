"""The check of documents and docstrings finds each kind of fault; `scripts/check` runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STYLE = """# Style

## Words that documents do not use

- `verdict`, `log line`: write *decision*, *record*.

## Further
"""
WIDE = "wide " * 20 + "w"


def check(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/prose.py", root],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def repository(tmp_path: Path, text: str) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/style.md").write_text(STYLE, "utf-8")
    (tmp_path / "README.md").write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        pytest.param(f"# A\n\n{WIDE}\n", 3, "101 columns", id="a wide line"),
        pytest.param(f"| a |\n|---|\n| {WIDE} |\n", 3, "columns", id="a wide row"),
        pytest.param(f"```\n{WIDE}\n```\n", 2, "columns", id="a wide line of code"),
        pytest.param("As B-3 says.\n", 1, "B-3: an id", id="an outside id"),
        pytest.param("A line\n(G12)\n", 2, "G12: an id", id="an outside id in brackets"),
        pytest.param("Its Verdicts count.\n", 1, "'Verdicts': docs/style.md", id="a word"),
        pytest.param("The log line.\n", 1, "'log line'", id="two words"),
        pytest.param("[x](gone.md)\n", 1, "gone.md: the file does", id="a file that is gone"),
        pytest.param("# A\n[x](#b)\n", 2, "#b: README.md has no", id="a heading that is gone"),
        pytest.param("[x](docs/style.md#b)\n", 1, "style.md has no", id="an anchor elsewhere"),
        pytest.param(
            "See `cli/gone.py`.\n", 1, "cli/gone.py: the file", id="a module that is gone"
        ),
        pytest.param("a\n\n    scripts/gone\n", 3, "scripts/gone", id="a script that is gone"),
        pytest.param("```\n# B\n```\n[x](#b)\n", 4, "#b: ", id="a heading inside of code"),
        pytest.param("a\n\n    # B\n\n[x](#b)\n", 5, "#b: ", id="a heading in indented code"),
    ],
)
def test_a_fault_is_found_at_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    code, [fault] = check(repository(tmp_path, text))
    assert code == 1
    assert fault.startswith(f"README.md:{line}: ")
    assert what in fault


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WIDE[:-1].rstrip() + "\n", id="a line of 100 columns and less"),
        pytest.param("SHA-256, T-7, ADR 4, RFC 3986\n", id="names with numbers"),
        pytest.param("`verdict` is a key; `[x](gone.md)` is code.\n", id="code"),
        pytest.param("```\nverdict [x](gone.md)\n```\n", id="a block of code"),
        pytest.param("[x](https://gone.invalid/a#b)\n", id="another site"),
        pytest.param("## A, b & `c`\n\n[x](#a-b--c) [y](docs/style.md#further)\n", id="anchors"),
        pytest.param("# A\n\n# A\n\n[x](#a) [y](#a-1)\n", id="a heading twice"),
    ],
)
def test_what_is_no_fault_is_not_found(tmp_path: Path, text: str) -> None:
    assert check(repository(tmp_path, text)) == (0, [])


def test_a_docstring_that_names_a_class_that_is_gone_is_found(tmp_path: Path) -> None:
    package = repository(tmp_path, "") / "ironcurtain_proxy"
    package.mkdir()
    (package / "ports.py").write_text("class Clock: ...\nName: int = 1\n", "utf-8")
    text = '"""Implements `ports.Clock`, `ports.Name`, `other.Gone`.\n\nSee `x.ports.End.at`."""\n'
    (package / "a.py").write_text(text, "utf-8")
    assert check(tmp_path) == (1, ["ironcurtain_proxy/a.py:1: ports.End: does not exist"])


def test_a_function_whose_docstring_begins_with_no_verb_is_found(tmp_path: Path) -> None:
    package = repository(tmp_path, "") / "ironcurtain_proxy"
    package.mkdir()
    functions = 'def f():\n    """Whether it is."""\n\n\ndef g():\n    """Return it."""\n\n\n'
    value = 'class C:\n    """A class."""\n\n    @property\n    def p(self):\n        """It."""\n'
    (package / "a.py").write_text(functions + value, "utf-8")
    told = "ironcurtain_proxy/a.py:1: f: its docstring begins with no verb, such as Return"
    assert check(tmp_path) == (1, [told])
