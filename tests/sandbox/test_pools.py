"""Python starts processes in a sandbox although no unix socket can be made there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.launch import with_pools

NEWER = """
class BaseContext:
    def __init__(self, name):
        self.name = name
    def get_start_method(self):
        return self.name
_concrete_contexts = {one: BaseContext(one) for one in ("fork", "spawn", "forkserver")}
class DefaultContext:
    def __init__(self, context):
        self._default_context = context
    def get_all_start_methods(self):
        return [self._default_context.get_start_method(), "fork"]
_default_context = DefaultContext(_concrete_contexts["DEFAULT"])
"""
"""What chooses how processes start, as Python 3.14 has it."""


def printed(code: str, modules: str, *, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": with_pools(modules), "PATH": os.environ["PATH"]},
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(("default", "chosen"), [("forkserver", "spawn"), ("fork", "fork")])
def test_processes_are_started_anew_where_a_server_would_start_them(
    tmp_path: Path, default: str, chosen: str
) -> None:
    package = tmp_path / "multiprocessing"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "context.py").write_text(NEWER.replace("DEFAULT", default))
    code = (
        "from multiprocessing import context as c; print(c._default_context._default_context.name)"
    )
    assert printed(code, "", directory=tmp_path) == chosen


def test_a_pool_works_and_a_program_may_choose_for_itself(tmp_path: Path) -> None:
    pool = (
        "import multiprocessing as m; {} print(m.Pool(2).map(abs, [-1, -2]), m.get_start_method())"
    )
    assert printed(pool.format(""), "", directory=tmp_path).startswith("[1, 2]")
    own = pool.format('m.set_start_method("fork");')
    assert printed(own, "", directory=tmp_path) == "[1, 2] fork"


def test_the_users_own_module_of_that_name_is_imported_and_can_be_absent(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("def mine():\n    return __file__\n")
    code = "import sitecustomize; print(sitecustomize.mine())"
    own = str(tmp_path / "own")
    assert printed(code, own, directory=tmp_path) == f"{own}/sitecustomize.py"
    assert printed("print(1)", "", directory=tmp_path) == "1"
