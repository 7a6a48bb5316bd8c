"""The files of the workspace that a command runs."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.shell.quiet import scripts_run
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT

ELSEWHERE = replace(PROJECT, directory="/srv/server")
"""A server starts in a directory of its own."""
FILE = f"{PROJECT.workspace}/b.sh"


def test_a_script_is_found_however_it_is_started() -> None:
    cases = [
        "sh b.sh", "./b.sh", "bash -ex b.sh", "bash -o pipefail b.sh x", "make x && sh b.sh",
        "timeout 60 ./b.sh", "env A=1 timeout -k 5 60s ./b.sh --all", "nohup ./b.sh &",
        "cd x; sh ../b.sh", "bash -c 'sh b.sh'", "bash -c 'cd x; ../b.sh'", ". ./b.sh",
        "source b.sh", "python3.12 b.sh", "uv run python b.sh", "node --require ./a.js b.sh",
        "sudo -E sh b.sh", "awk -f b.sh x.csv", "git fetch; x | sh b.sh", "/bin/sh b.sh",
        "cd /home/u/project; sh b.sh", "/home/u/project/b.sh", "sh /home/u/project/b.sh",
    ]  # fmt: skip
    assert [
        command for command in cases if FILE not in scripts_run(parse_command(command), PROJECT)
    ] == []


@pytest.mark.parametrize(
    "command",
    ["sh /home/u/project/b.sh", "cd /home/u/project; ./b.sh", "sh -c 'cd ~/project; ./b.sh'"],
)
def test_it_is_found_from_another_directory(command: str) -> None:
    assert scripts_run(parse_command(command), ELSEWHERE) == (FILE,)


def test_a_module_is_a_file_or_a_package() -> None:
    top = PROJECT.workspace
    found = scripts_run(parse_command("python3 -m pkg.tool x"), PROJECT)
    assert {f"{top}/pkg/tool.py", f"{top}/pkg/tool/__main__.py"} <= {*found}


@pytest.mark.parametrize(
    "command",
    [
        "git push", "cp a b", "cp b.sh /srv/x", "cat b.sh", "python3 /srv/x.py", "sh b.sh",
        "sh $x", "./$x", "python3 -m $x", "/usr/bin/make x", "echo 'sh b.sh'",
    ],
)  # fmt: skip
def test_other_words_are_no_scripts_of_the_workspace(command: str) -> None:
    assert scripts_run(parse_command(command), ELSEWHERE) == ()
