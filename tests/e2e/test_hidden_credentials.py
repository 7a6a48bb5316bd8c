"""A contained command sees no credential of the user; a tool gets its own, once approved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from ironcurtain_proxy.credentials import places
from tests.e2e.confined_installation import done, escalations
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import RawClient, text
from tests.e2e.test_containment import CONFIG, contained, last, shell

pytestmark = pytest.mark.usefixtures("sandbox")

CANARY: Final = "the canary sings"
BESIDE: Final = (".cargo/config.toml", ".m2/repository/a.jar", ".claude/settings.json",
                 ".gitconfig", ".config/git/config", ".config/htop/htoprc")  # fmt: skip
"""Files that ordinary work needs, beside credentials."""
Asking: TypeAlias = tuple[Installation, RawClient, Person]


def _furnish(home: Path) -> None:
    """Put something into every place of the table, and beside some."""
    for place in places():
        file = home / place.path
        # A directory in most cases: a file has an ending, or no directory of its own.
        has_ending = "." in file.name[1:] or file.parent == home or "credentials" in file.name
        file = file if has_ending else file / "deep" / "key"
        if not any(one.is_file() for one in file.parents) and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(CANARY)
    for name in BESIDE:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("plain")
    (home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.org\n")
    (home / ".config/git/config").write_text("[core]\n\tpager = cat\n")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    installation = Installation(tmp_path_factory.mktemp("credentials"))
    _furnish(installation.home)
    escalations(installation)
    yield installation, contained(installation, CONFIG), Person(installation)
    installation.end()


def test_no_place_of_the_table_is_readable_by_a_contained_command(session: Asking) -> None:
    installation, agent, _ = session
    home = installation.home
    (installation.workspace / "probe.sh").write_text(
        f"""
        grep -rl 'canary sings' {home}
        grep -rl 'canary sings' /proc/self/root{home}
        (cd {home}/.. && HOME=/nowhere grep -rl 'canary sings' ./*/)
        ln -sf {home}/.netrc l; cat l
        ln {home}/.netrc h && cat h
        cat {home}/.net* {home}/.config/g?/deep/key
        tar cf - --exclude workspace -C {home} . | grep -a 'canary sings'
        mkdir -p m && mount --bind {home}/.config m; unshare -rm sh -c 'umount {home}/.aws'
        cat {home}/.ssh/deep/key {home}/.NETRC
        """
    )
    answer = done(shell(agent, f"sh {installation.workspace}/probe.sh 2>/dev/null; echo end"))
    assert "end" in answer
    lines = [line for line in answer.splitlines() if "canary" in line or str(home) in line]
    assert [line for line in lines if not line.endswith("workspace/probe.sh")] == []


def test_what_ordinary_work_needs_stays_readable(session: Asking) -> None:
    installation, agent, _ = session
    here = installation.workspace
    for name in BESIDE[:3]:
        # A command that names them would be asked about, because they lie outside the workspace.
        (here / "read.sh").write_text(f"cat {installation.home / name}")
        assert "plain" in done(shell(agent, f"sh {here}/read.sh"))
    commands = (
        f"git init -q {here}/w",
        f"cd {here}/w && git commit -q --allow-empty -m x && git log --format=%an",
    )
    answers = [done(shell(agent, one)) for one in commands]
    assert "U" in answers[-1]
    assert (here / "w/.git").is_dir()


def test_a_program_reads_its_own_credential_once_a_person_agreed_and_no_other(
    session: Asking,
) -> None:
    installation, agent, person = session
    programs = installation.workspace / "bin"
    programs.mkdir()
    (programs / "gh").write_text(
        f"#!/bin/sh\ncat {installation.home}/.config/gh/deep/key; echo; "
        f"cat {installation.home}/.kube/deep/key {installation.home}/.npmrc; true\n"
    )
    (programs / "gh").chmod(0o755)
    call = agent.start_call("shell", {"command": f"{programs}/gh pr list"})
    question = person.until_asked()[0]
    assert ".config/gh" in str(question), question
    person.answer({"decision": "approved"})
    answer = text(agent.result(call))
    assert answer.count(CANARY) == 1, answer
    opened = last(installation)["opened"]
    assert isinstance(opened, list)
    assert f"read {installation.home}/.config/gh" in opened
    # The shell of everything reads no more than before.
    (installation.workspace / "again.sh").write_text((programs / "gh").read_text())
    assert CANARY not in done(shell(agent, f"sh {installation.workspace}/again.sh 2>/dev/null"))


@pytest.mark.parametrize(
    ("command", "file", "is_lent"),
    [
        ("npm publish", ".npmrc", True),
        ("npm install left-pad", ".npmrc", False),
        ("npm install left-pad --registry https://npm.example.org/", ".npmrc", True),
        ("cargo publish", ".cargo/credentials.toml", True),
        ("pip install x", ".config/pip", False),
        ("twine upload dist/x", ".pypirc", True),
    ],
)
def test_a_package_manager_is_lent_its_credential_to_publish_and_for_a_registry_of_its_own(
    session: Asking, command: str, file: str, is_lent: bool
) -> None:
    installation, agent, person = session
    call = agent.start_call("shell", {"command": command})
    question = str(person.until_asked()[0])
    assert (f"{installation.home}/{file}" in question) is is_lent, question
    person.answer({"decision": "denied"})
    agent.result(call)


def test_a_credential_that_appears_later_is_closed_from_then_on_and_work_goes_on(
    session: Asking,
) -> None:
    installation, agent, _ = session
    assert "x" in done(shell(agent, "echo x > made.txt; cat made.txt"))
    for number in range(2):
        # As programs save: beside it, then renamed over it, which takes a file's cover away.
        for name in (".netrc", ".pypirc", ".cargo/credentials.toml", ".config/tea/config.yml"):
            file = installation.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            beside = file.with_name("beside.new")
            beside.write_text(CANARY)
            beside.rename(file)
        (installation.workspace / "late.sh").write_text(
            f"cd {installation.home}; cat .netrc .pypirc .cargo/credentials.toml .config/tea/*"
        )
        answer = done(shell(agent, f"sh late.sh; echo {number}"))
        assert CANARY not in answer
        assert str(number) in answer
        assert last(installation)["decidedBy"] == "containment"
