"""What settings of git lead to is closed where it exists, and taken away where it comes to be."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file

import pytest

from tests.sandbox.test_lookout import EVIL, Watched
from tests.tables import table


def git(place: Path, *words: str) -> None:
    own = ("-c", "user.name=x", "-c", "user.email=x@y")
    subprocess.run(["git", *own, "-C", place, *words], check=True, capture_output=True)


def repository(w: Watched, *settings: str, name: str = "r") -> Path:
    (w.top / name).mkdir()
    git(w.top / name, "init", "-q")
    git(w.top / name, "commit", "-q", "--allow-empty", "-m", "one")
    for setting in settings:
        git(w.top / name, "config", *setting.split("="))
    return w.top / name


def plain(w: Watched) -> None:
    w.put("r/.githooks/pre-commit")


def renamed(w: Watched) -> None:
    w.put("r/other/pre-commit")
    (w.top / "r/other").rename(w.top / "r/.githooks")


def by_a_link(w: Watched) -> None:
    w.put("r/other/pre-commit")
    (w.top / "r/.githooks").symlink_to("other")


def in_a_moved_repository(w: Watched) -> None:
    (w.top / "r").rename(w.top / "s")
    w.put("s/.githooks/pre-commit")


@pytest.mark.parametrize("make", [plain, renamed, by_a_link, in_a_moved_repository])
def test_hooks_that_a_repository_names_and_that_come_later_are_taken_away(
    w: Watched, make: Callable[[Watched], None]
) -> None:
    repository(w, "core.hooksPath=.githooks")
    w.begin()
    make(w)
    assert len(w.look()) == 1
    assert not any(os.path.lexists(w.top / name / ".githooks") for name in ("r", "s"))


def test_a_directory_on_the_way_to_missing_hooks_may_be_no_link(w: Watched) -> None:
    repository(w, "core.hooksPath=tools/hooks")
    w.begin()
    w.put("evil/hooks/pre-commit")
    (w.top / "r/tools").symlink_to("../evil")
    assert len(w.look()) == 1
    assert not os.path.lexists(w.top / "r/tools")


@pytest.mark.parametrize("there", ["Tools/HOOKS/pre-commit", "tools/hoo\u212as/pre-commit"])
def test_missing_hooks_are_known_by_any_name_that_a_file_system_takes_for_theirs(
    w: Watched, there: str
) -> None:
    repository(w, "core.hooksPath=tools/hooks")
    w.begin()
    evil = w.put(f"r/{there}")
    assert (len(w.look()), evil.exists()) == (1, False)
    (w.top / "r" / "TOOLS").symlink_to("../evil")
    assert len(w.look()) == 1


def test_a_script_that_settings_lead_to_is_known_in_any_case_and_a_module_of_python_exactly(
    w: Watched,
) -> None:
    w.put("../home/.bashrc", f"cd {w.top}/t && bash run\nexport PYTHONPATH={w.top}/py\n")
    w.put("t/other")
    w.put("py/other.py")
    w.begin()
    evil, data = w.put("t/RUN"), w.put("py/Json.py")
    assert (len(w.look()), evil.exists(), data.exists()) == (1, False, True)
    evil = w.put("PY/json.py")
    assert (len(w.look()), evil.exists()) == (1, False)


def test_a_directory_on_the_way_to_hooks_may_not_become_a_link(w: Watched) -> None:
    repository(w)
    w.put(".git/config", "[core]\n\thooksPath = tools/hooks\n")
    w.put("tools/hooks/pre-commit")
    w.begin()
    (w.top / "tools").rename(w.top / "before")
    w.put("other/hooks/pre-commit", "evil")
    (w.top / "tools").symlink_to("other")
    assert w.look() != []
    assert not (w.top / "tools").is_symlink()


def test_hooks_of_a_repository_hold_in_its_worktrees(w: Watched) -> None:
    git(repository(w, "core.hooksPath=.githooks"), "worktree", "add", "-q", str(w.top / "wt"))
    w.begin()
    w.put("wt/.githooks/pre-commit")
    assert len(w.look()) == 1
    assert not (w.top / "wt/.githooks").exists()


@pytest.mark.parametrize("is_new", [False, True])
def test_hooks_that_the_user_names_for_every_repository_are_looked_after(
    w: Watched, is_new: bool
) -> None:
    home = w.top.parent / "home"
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    (home / "more").write_text("[core]\n\thooksPath = .hooks\n")
    if not is_new:
        repository(w)
    w.begin()
    if is_new:
        repository(w)
    w.put("r/.hooks/pre-commit")
    assert len(w.look()) == 1
    assert not (w.top / "r/.hooks").exists()


def test_the_users_own_settings_are_closed_where_they_lie_in_the_workspace(w: Watched) -> None:
    (w.top.parent / "home/.gitconfig").symlink_to(w.put("dotfiles/gitconfig"))
    assert str(w.top / "dotfiles/gitconfig") in w.begin()


def test_an_included_configuration_that_comes_later_is_taken_away(w: Watched) -> None:
    repository(w, "include.path=../.gitconfig")
    w.begin()
    w.put("r/.gitconfig", EVIL)
    assert len(w.look()) == 1
    assert not (w.top / "r/.gitconfig").exists()


def test_what_an_included_configuration_includes_is_closed(w: Watched) -> None:
    repository(w, "include.path=../.gitconfig")
    w.put("r/.gitconfig", "[include]\n\tpath = local\n[core]\n\thooksPath = more\n")
    w.put("r/local", "[include]\n\tpath = .gitconfig\n")
    w.put("r/more/pre-commit")
    assert {str(w.top / "r" / name) for name in ("local", "more")} <= {*w.begin()}


def test_the_scripts_that_husky_runs_are_closed(w: Watched) -> None:
    repository(w, "core.hooksPath=.husky/_")
    w.put("r/.husky/_/pre-commit")
    w.put("r/.husky/pre-commit")
    assert str(w.top / "r/.husky") in w.begin()


def test_a_link_in_the_place_of_hooks_cannot_be_exchanged(w: Watched) -> None:
    repository(w, "core.hooksPath=.githooks")
    w.put("r/tools/pre-commit")
    (w.top / "r/.githooks").symlink_to("tools")
    w.begin()
    assert w.look() == []
    (w.top / "r/.githooks").unlink()
    (w.top / "r/.githooks").symlink_to("evil")
    assert len(w.look()) == 1
    link = w.top / "r/.githooks"
    assert not os.path.lexists(link) or str(link.readlink()) == "tools"


def test_what_a_hook_leads_to_is_taken_away_where_it_did_not_exist(w: Watched) -> None:
    repository(w)
    (w.top / "r/.git/hooks/pre-push").symlink_to("../../missing.sh")
    w.begin()
    w.put("r/missing.sh")
    assert len(w.look()) == 1
    assert not (w.top / "r/missing.sh").exists()


def test_a_new_repository_has_its_worktree_with_it(w: Watched) -> None:
    w.begin()
    repository(w, "core.worktree=../../../elsewhere")
    assert len(w.look()) == 1
    assert not (w.top / "r/.git").exists()


def test_a_submodule_stays(w: Watched) -> None:
    other = repository(w, name="other")
    r = repository(w)
    w.begin()
    git(r, "-c", "protocol.file.allow=always", "submodule", "add", str(other), "deep/mod")
    assert w.look() == []
    assert b"worktree" in (r / ".git/modules/deep/mod/config").read_bytes()


def test_a_rebase_that_would_run_a_command_when_the_user_goes_on_is_taken_away(w: Watched) -> None:
    repository(w)
    w.begin()
    todo = w.put("r/.git/rebase-merge/git-rebase-todo", "pick 1234567 # x\n")
    assert w.look() == []
    todo.write_text("pick 1234567\n  x ./evil\n")
    w.put("r/.git/index.lock")
    assert len(w.look()) == 1
    assert not todo.exists()


def test_a_directory_of_scripts_that_settings_name_is_closed_if_it_is_there(w: Watched) -> None:
    w.put("checks/pre-commit/x", "mine")
    w.put("lefthook.yml", "source_dir: checks")
    assert str(w.top / "checks") in w.begin()


@pytest.mark.parametrize("name", table("sandbox/leads.agents", list[str]))
def test_settings_of_agents_that_come_later_are_taken_away(w: Watched, name: str) -> None:
    w.begin()
    w.put(f"deep/{name}")
    assert len(w.look()) == 1
    assert not (w.top / "deep" / name).exists()


@pytest.mark.parametrize("name", [".github/workflows/x.yml", ".gitignore", ".mypy_cache/x"])
def test_other_files_beside_them_stay(w: Watched, name: str) -> None:
    w.begin()
    w.put(f"deep/{name}")
    assert w.look() == []
    assert (w.top / "deep" / name).exists()


_SETTINGS = table("sandbox/leads.settings", dict[str, str])


@pytest.mark.parametrize("place", _SETTINGS)
def test_a_file_that_the_users_own_settings_run_is_closed_and_put_back(
    w: Watched, place: str
) -> None:
    top = w.top / "r" if place.startswith("r/") else w.top
    repository(w, "core.hooksPath=tools/hooks" if "tools" in place else "user.name=x")
    program = top / "t/run.py"
    for file, content in {program: "mine", top / "t/data.py": "data", w.top / place: "x"}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (w.top / place).write_text(_SETTINGS[place])
    w.begin()
    assert str(program) in w.lookout.closed()
    (top / "t/data.py").write_text("changed")
    program.rename(top / "t/other.py")
    program.write_text(EVIL)
    assert (len(w.look()), program.read_text()) == (1, "mine")
    assert (top / "t/data.py").read_text() == "changed"


@pytest.mark.parametrize(
    ("place", "text", "path"),
    table("sandbox/leads.loaded_at_once", list[tuple[str, str, str]]),
)
def test_a_file_that_settings_load_as_soon_as_it_is_there_is_taken_away(
    w: Watched, place: str, text: str, path: str
) -> None:
    w.put(place, text)
    w.begin()
    w.put("bin/tool", "data")
    file = w.put(path)
    assert (len(w.look()), file.exists()) == (1, False)
    assert (w.top / "bin/tool").exists()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("there", ["../home/.claude/settings.json", ".claude/settings.json"])
def test_settings_that_begin_with_a_mark_or_are_not_utf8_are_read(
    w: Watched, there: str, encoding: str
) -> None:
    w.put(there).write_text(f'{{"command": "{w.top}/t/x.sh"}}', encoding=encoding)
    w.begin()
    evil = w.put("t/x.sh")
    assert (len(w.look()), evil.exists()) == (1, False)


@pytest.mark.parametrize("name", [".claude/settings.json", "../home/.claude/settings.json"])
def test_settings_of_many_words_are_read_to_their_end(w: Watched, name: str) -> None:
    words = ", ".join([f'"w{number}"' for number in range(10_000)])
    program = w.put("t/run.sh", "mine")
    w.put(name, f'{{"words": [{words}], "command": "{program}"}}')
    assert str(program) in w.begin()


@pytest.mark.parametrize("name", ["my tools/run", "app/[id]/run", "a,b/run"])
def test_a_program_with_signs_in_its_name_is_closed(w: Watched, name: str) -> None:
    program = w.put(name, "mine")
    w.put(".claude/settings.json", f'{{"command": "\\"$CLAUDE_PROJECT_DIR\\"/\\"{name}\\" -v"}}')
    assert str(program) in w.begin()


def test_a_link_on_the_way_of_a_link_of_the_home_cannot_be_exchanged(w: Watched) -> None:
    w.put("real/settings.json", "{}")
    (w.top / "dot").symlink_to("real")
    settings = w.top.parent / "home/.cursor/settings.json"
    settings.parent.mkdir()
    settings.symlink_to(w.top / "dot/settings.json")
    w.begin()
    w.put("other/settings.json", EVIL)
    (w.top / "dot").unlink()
    (w.top / "dot").symlink_to("other")
    assert len(w.look()) == 1
    assert not settings.exists() or settings.read_text() == "{}"


def test_a_directory_of_libraries_may_not_become_a_link(w: Watched) -> None:
    w.put(".envrc", "export PERL5LIB=$PWD/deep/lib")
    w.begin()
    w.put("data/lib/strict.pm", EVIL)
    (w.top / "deep").symlink_to("data")
    assert (len(w.look()), (w.top / "deep").exists()) == (1, False)


def test_what_settings_start_by_its_name_is_looked_for_where_an_environment_says(
    w: Watched,
) -> None:
    w.put(".envrc", "PATH_add tools")
    w.put(".mcp.json", '{"mcpServers": {"a": {"command": "npx", "args": ["x"]}}}')
    lint = w.put("tools/lint", "mine")
    repository(w)
    (w.top / "r/.git/hooks/pre-push").write_text("#!/bin/sh\nlint --all\n")
    assert str(lint) in w.begin()
    npx = w.put("tools/npx", EVIL)
    assert (len(w.look()), npx.exists()) == (1, False)


def test_a_program_of_python_without_an_ending_has_its_modules_beside_it(w: Watched) -> None:
    w.put(".claude/settings.json", '{"command": "tools/hook"}')
    w.put("tools/hook", "#!/usr/bin/env python3\nimport sys\nsys.path.insert(0, 'vendor')\n")
    w.put("tools/vendor/own.py", "mine")
    w.begin()
    for name in ("tools/json.py", "tools/vendor/json.py"):
        w.put(name, EVIL)
        assert (len(w.look()), (w.top / name).exists()) == (1, False)


@pytest.mark.parametrize(
    ("text", "stays"), table("sandbox/leads.variables", list[tuple[str, bool]])
)
def test_a_file_of_variables_that_an_environment_loads_may_set_data_alone(
    w: Watched, text: str, *, stays: bool
) -> None:
    w.put(".envrc", "dotenv")
    file = w.put(".env", "A=b\n")
    w.begin()
    file.write_text(f"A=b\n{text}\n")
    assert (len(w.look()), text in file.read_text()) == (not stays, stays)


def in_the_repository(w: Watched) -> Path:
    return repository(w)


def beside_the_workspace(w: Watched) -> Path:
    return repository(w, name="../r")


@pytest.mark.parametrize("make", [in_the_repository, beside_the_workspace])
@pytest.mark.parametrize("hook", ["exec ./t/run.sh", "exec python3 -mjson.tool"])
def test_what_hooks_start_is_looked_after_in_the_worktrees_of_their_repository(
    w: Watched, make: Callable[[Watched], Path], hook: str
) -> None:
    r = make(w)
    (r / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    git(r, "worktree", "add", "-q", str(w.top / "wt"))
    w.begin()
    for name in ("t/run.sh", "json.py"):
        w.put(f"wt/{name}")
    assert len(w.look()) == 1
    assert (w.top / "wt/t/run.sh").exists() != (w.top / "wt/json.py").exists()


def test_what_a_submodules_hooks_start_is_looked_after_in_its_worktree(w: Watched) -> None:
    other, r = repository(w, name="other"), repository(w)
    git(r, "-c", "protocol.file.allow=always", "submodule", "add", str(other), "mod")
    (r / ".git/modules/mod/hooks/pre-commit").write_text("#!/bin/sh\ntools/x\n")
    w.begin()
    w.put("r/mod/tools/x")
    assert len(w.look()) == 1


def test_hooks_of_the_user_for_every_repository_may_start_what_lies_in_one(w: Watched) -> None:
    home = w.top.parent / "home"
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {home}/hooks\n")
    (home / "hooks").mkdir()
    (home / "hooks/pre-commit").write_text("[ -x scripts/check ] && scripts/check\n")
    repository(w)
    w.begin()
    w.put("r/scripts/check")
    assert len(w.look()) == 1


def test_what_a_hook_that_is_a_link_starts_is_looked_after(w: Watched) -> None:
    r = repository(w)
    script = w.put("r/scripts/pre-commit.sh", "#!/bin/sh\n[ -x ci/lint ] && ci/lint\n")
    (r / ".git/hooks/pre-commit").symlink_to(script)
    w.begin()
    w.put("r/ci/lint")
    assert len(w.look()) == 1


def test_a_file_that_git_believes_is_closed(w: Watched) -> None:
    signers = repository(w, "gpg.ssh.allowedSignersFile=signers") / "signers"
    signers.write_text("me")
    assert str(signers) in w.begin()


def test_a_hook_that_is_a_link_to_a_program_is_followed_no_further(w: Watched) -> None:
    repository(w)
    program = w.put("tools/guard", "\x7fELF[a]\nb = /x\0/y\n")
    (w.top / "r/.git/hooks/pre-push").symlink_to(program)
    assert str(program) in w.begin()


def test_files_that_settings_only_speak_of_stay_data(w: Watched) -> None:
    w.put("src/main.py", "old")
    w.put(".claude/settings.json", '{"permissions": {"allow": ["Edit(src/main.py)"]}}')
    w.put(".claude/commands/edit.md", "Run src/main.py, with command: src/main.py")
    w.put(".vscode/launch.json", '{"program": "src/main.py", "args": ["src/main.py"]}')
    w.put(
        ".vscode/settings.json",
        '{"python.defaultInterpreterPath": ".venv/bin/python", "files.exclude": {"src/main.py": 1},'
        ' "x.patterns": {"a": "src/main.py"}, "src/main.py": "Look at src/main.py"}',
    )
    w.put(".pre-commit-config.yaml", "exclude: src/main.py\nhooks:\n- files: [src/main.py]")
    w.put(".devcontainer/Dockerfile", "COPY src/main.py .")
    w.put(".cursorrules", "See src/main.py")
    w.put(".idea/workspace.xml", '<entry file="$PROJECT_DIR$/src/main.py"/>')
    w.begin()
    w.put("src/main.py", "new")
    w.put(".venv/bin/python", "new")
    assert w.look() == []


@pytest.mark.parametrize("evil", [False, True])
def test_a_script_that_the_users_git_makes_anew_stays_as_it_was_at_the_start(
    w: Watched, *, evil: bool
) -> None:
    top = repository(w, "core.hooksPath=.githooks")
    w.put("r/.mcp.json", '{"mcpServers": {"a": {"command": "tools/run.sh"}}}')
    program = w.put("r/tools/run.sh", "mine")
    w.put("r/.githooks/pre-commit", "mine")
    w.put("r/.git/hooks/pre-push", "mine")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "two")
    w.begin()
    held = {
        path: path.rename(w.top.parent / path.name)
        for path in (top / ".git", top / "tools", top / ".githooks")
    }
    w.look()
    for path, one in held.items():
        shutil.copytree(one, path)
    if evil:
        program.write_text(EVIL)
    assert len(w.look()) == evil
    assert program.read_text() == "mine"
    assert all(one.exists() for one in held)


@pytest.fixture
def python(w: Watched) -> Watched:
    """Settings that start a module, and a program beside which Python looks first."""
    servers = '{"a": {"command": "python3", "args": ["-m", "t.run"]}, "b": ["python3 v/run.py"]}'
    w.put(".mcp.json", servers)
    w.put(".claude/settings.json", '{"command": "python3 s/run.py"}')
    w.put("t/run.py", "import first, os")
    w.put("s/run.py", "from second import x\nimport helper")
    w.put("s/helper.py", "def f():\n    import more")
    w.put("s/more.py", "mine")
    w.put("v/run.py", "import helper")
    w.put("v/helper.py", "x = 1")
    w.put("s/third.py", "x = 1")
    for name in ("installed/__init__.py", "third.py"):
        w.put(f".venv/lib/python3.11/site-packages/{name}")
    w.begin()
    return w


@pytest.mark.parametrize("name", table("sandbox/leads.modules", list[str]))
def test_a_module_that_python_would_take_in_place_of_another_is_taken_away(
    python: Watched, name: str
) -> None:
    for data in ("v/helper.py", "s/third.py", "t/installed.py", "t/first.py", "new.py"):
        python.put(data, "changed")
    file = python.put(name, EVIL)
    assert (len(python.look()), file.exists()) == (1, False)
    assert (python.top / "new.py").exists()


@pytest.mark.parametrize("name", ["s/helper.py", "s/more.py"])
def test_the_modules_beside_a_program_that_it_imports_are_put_back(
    python: Watched, name: str
) -> None:
    file = python.top / name
    before = file.read_text()
    file.unlink()
    file.write_text(EVIL)
    assert (len(python.look()), file.read_text()) == (1, before)
    python.put("s/more/__init__.py", EVIL)
    assert len(python.look()) == 1


def test_the_users_python_runs_nothing_that_was_left_in_the_place_of_its_modules(
    python: Watched,
) -> None:
    evil = f"open({str(python.top / 'ran')!r}, 'a').write(__file__)"
    for name in ("second.py", "first/__init__.py", "json/__init__.py", "t/run/__init__.py"):
        for place in ("", "s/"):
            python.put(f"{place}{name}", evil)
    source = python.top.parent / "evil.py"
    source.write_text(evil)
    for name in (cache_from_source(str(python.top / "t/run.py")), str(python.top / "s/types.pyc")):
        compile_file(str(source), name, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    python.look()
    for words in (["-m", "t.run"], ["s/run.py"]):
        subprocess.run([sys.executable, *words], cwd=python.top, check=False, capture_output=True)
    assert not (python.top / "ran").exists()


@pytest.mark.parametrize("name", ["s/json", "installed", "t/run", "t/__pycache__"])
def test_a_link_in_the_place_of_a_package_is_taken_away(python: Watched, name: str) -> None:
    python.put("evil/__init__.py")
    (python.top / name).symlink_to(python.top / "evil")
    assert (len(python.look()), os.path.lexists(python.top / name)) == (1, False)


def test_compiled_modules_of_the_users_programs_go_without_a_word(python: Watched) -> None:
    file = python.put("t/__pycache__/run.cpython-311.pyc", EVIL)
    other = python.put("v/__pycache__/helper.cpython-311.pyc")
    assert python.look() == []
    assert (file.exists(), other.exists(), python.lookout.unseen) == (False, True, "")
