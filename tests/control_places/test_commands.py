"""What settings outside of a workspace name there is found without reading all of them whole."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.control_places.leads import Leads
from ironcurtain_proxy.control_places.outside import may_lead

_KEYS = st.sampled_from(
    ["command", "Args", "RUN", "theme", "cwd", "apiKeyHelper", "source_dir", "_.path", "_.file"]
)
_KNOWN_WORDS = """
    tools/lint ./tools/lint $PWD/tools/lint ${workspaceFolder}/tools/lint /tools/lint tools lint x
    new/one.sh no/where Makefile python -m -c bash cd && uv run ; $f ~/x ../top/tools/lint source
    https://host.example/a/b text/plain layout use pyenv conda .venv .hidden/run
"""
_WORDS = st.sampled_from(_KNOWN_WORDS.split())
_VALUES = st.lists(_WORDS, max_size=3).map(" ".join)
_LINES = st.one_of(
    st.tuples(_KEYS, _VALUES).map(lambda one: f'"{one[0]}": "{one[1]}",'),
    st.tuples(_KEYS, st.lists(_WORDS, max_size=3)).map(
        lambda one: f'"{one[0]}": [{", ".join([repr(word) for word in one[1]])}]'
    ),
    st.tuples(_KEYS, _VALUES).map(lambda one: f"{one[0]}: {one[1]}"),
    st.tuples(_KEYS, _VALUES).map(lambda one: f"{one[0]} = '{one[1]}'"),
)


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("project").resolve() / "top"
    for file in ("tools/lint", "tools/lint.js", ".hidden/run", "Makefile", "x"):
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        (top / file).write_text("x")
    return top


@settings(max_examples=200)  # most hold nothing that could lead anywhere
@given(
    lines=st.lists(_LINES, min_size=1, max_size=2), ending=st.sampled_from(["json", "yml", "toml"])
)
def test_settings_that_are_not_read_whole_lead_nowhere(
    top: Path, lines: list[str], ending: str
) -> None:
    text = "\n".join(lines)
    leads = Leads((str(top),))
    leads.of_commands(f"/elsewhere/settings.{ending}", text, [str(top)])
    names = {one.lstrip(".") for one in os.listdir(top)}  # noqa: PTH208  as in the product
    if not may_lead(f"settings.{ending}", text, ("top/", f"{str(top)[1:]}/"), names):
        assert len(leads) == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"theme": "dark", "url": "https://host.example/tools/lint", "kind": "text/plain"}',
        '{"recent": ["/somewhere/else/tools"], "size": 3.5}',
        "theme: dark\nfont: mono\n",
        '{"theme": "bash",\n"other": ""}',
    ],
)
def test_what_programs_keep_beside_settings_is_not_read_as_commands(text: str) -> None:
    assert not may_lead("settings.json", text, ("top/",), {"tools", "Makefile"})


@pytest.mark.parametrize(
    "text",
    [
        '"helper": "tools/lint"',
        '"cwd": "tools"',
        "helper: $PWD/tools/lint",
        '"helper": "new/one.sh"',
        '"Command": "new/one"',
        "_.path = 'new'",
        "prelude: layout pyenv python3",
        '"nodepath": "new"',
    ],
)
def test_settings_that_name_one_thing_of_a_project_are_read_whole(text: str) -> None:
    assert may_lead("settings.json", text, ("top/",), {"tools"})


@pytest.mark.parametrize("root", ["code/app", "app", ".config/tool/app"])
@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".config/tool/settings", "x = ~/{root}/run"),
        (".config/tool/settings", "x = {home}/{root}/run"),
        (".config/tool/settings.json", '{{"x": "~/{root}/run"}}'),
        (".config/tool/run.sh", 'cd "$HOME"/{root} && ./run'),
        (".config/tool/run.sh", ". ../../{root}/run"),
    ],
)
def test_settings_of_the_home_lead_to_what_they_name_in_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, file: str, text: str
) -> None:
    home = tmp_path.resolve()
    monkeypatch.setenv("HOME", str(home))
    (home / root).mkdir(parents=True)
    (home / root / "run").touch()
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(text.format(root=root, home=home))
    leads = Leads((f"{home}/{root}",))
    leads.of_outside()
    assert leads.is_path(f"{home}/{root}/run")
