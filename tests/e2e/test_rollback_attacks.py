"""A process that an earlier call left behind works against the timeline and against rollback.

With a real sandbox. The policy allows every command: nothing but the sandbox, the look afterwards
and the timeline stand in the way.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.confined_installation import folder
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.process_tree import Watch
from tests.e2e.raw_client import RawClient
from tests.e2e.test_contained_attacks import steering, tree
from tests.e2e.test_containment import contained, last, shell
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def agent(installation: Installation) -> RawClient:
    installation.rules = [rule("go", "allow", tool=["shell"]), rule("rest", "escalate", "ask")]
    return contained(installation)


def leave_behind(installation: Installation, agent: RawClient, bodies: Sequence[str]) -> None:
    """Processes of which each does something again and again until the file `stop` is there.

    All are in one session: of a busy machine the kernel gives each session as much as another.
    """
    scripts = folder(installation, "scripts")
    for number, body in enumerate(bodies):
        loop = f"cd {installation.workspace}\nuntil [ -e stop ]; do\n{body}\ndone\n"
        (scripts / f"{number}.sh").write_text(loop)
    every = scripts / "every"
    every.write_text(f"for script in {scripts}/*.sh; do sh $script & done; wait\n")
    shell(agent, f"setsid nice timeout 60 sh {every} > /dev/null 2>&1 < /dev/null &")


HOOKS = (
    "mkdir -p deep/.git/hooks; echo evil > deep/.git/hooks/pre-commit",
    "mkdir -p m/.git/hooks; echo evil > m/.git/hooks/a; mv m/.git/hooks/a m/.git/hooks/b",
    "mkdir -p .claude; echo evil > .claude/settings.json; mv .claude c; rm -rf c",
    "git init -q n; git -C n config core.fsmonitor ./evil; rm -rf n",
    "mkdir -p b/objects b/refs b/hooks; echo evil > b/hooks/x; echo ref: refs/heads/x > b/HEAD",
    "mkdir -p p; echo 'gitdir: ../evil' > p/.git; mv p q; mv q p",
)


def test_rollback_puts_nothing_back_that_steers_git_or_an_agent(
    installation: Installation, agent: RawClient
) -> None:
    leave_behind(installation, agent, HOOKS)  # each in a directory of its own
    calls: list[str] = []
    for number in range(4):
        shell(agent, f"cd {installation.workspace}; echo {number} > n; sleep 0.1")
        calls.append(str(last(installation)["requestId"]))
    # It goes on to the end: that of the session is its end, too.
    agent.close()
    assert list(steering(installation.workspace)) == []
    person = Person(installation)
    for call in reversed(calls):
        for words in ((call,), ("--to", call)):
            person.run("rollback", *words)
            assert list(steering(installation.workspace)) == []


RACES = table("e2e/attacks.races", tuple[str, ...])


def test_nothing_outside_changes_while_what_is_put_back_is_exchanged(
    installation: Installation, agent: RawClient
) -> None:
    here, out = installation.workspace, folder(installation, "out")
    (out / "precious.txt").write_text("precious")
    (out / "sub").mkdir()
    (here / "d/sub").mkdir(parents=True)
    for number in range(40):
        (here / f"d/{number}").write_text(f"{number}")
        (here / f"d/sub/{number}").write_text(f"{number}")
    before = tree(out)
    person = Person(installation)
    calls: list[str] = []
    shell(agent, f"echo > {here}/begin")
    begin = str(last(installation)["requestId"])
    leave_behind(installation, agent, [body.replace("{out}", str(out)) for body in RACES])
    for change in ("rm -rf d/sub d/1* d/2*", "for f in d/3*; do echo x > $f; done", "rm -rf d"):
        shell(agent, f"cd {here}; {change}; sleep 0.1")
        calls.append(str(last(installation)["requestId"]))
        for words in ((calls[-1],), ("--to", calls[-1])):
            said = person.run("rollback", *words)
            assert said.returncode in {0, 1}, said
            assert "Traceback" not in said.stderr, said
            assert tree(out) == before
    shell(agent, f"touch {here}/stop; sleep 0.3")
    every = Watch(installation.processes(agent))
    agent.close()
    assert not every.survivors()
    assert list(steering(here)) == []
    # When nobody works against it any more, it is all there again.
    assert person.run("rollback", "--to", begin, "--force").returncode == 0
    assert tree(out) == before
    assert (here / "d/sub/7").read_text() == "7"


def test_a_storm_of_renames_that_a_call_left_running_hinders_no_rollback(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    here = installation.workspace
    (here / "d/sub").mkdir(parents=True)
    for number in range(20):
        (here / f"d/{number}").write_text(f"{number}")
    before = {path: path.read_text() for path in here.rglob("*") if path.is_file()}
    agent = contained(installation)
    storm = "".join(f"mv d/{n} d/sub/{n}; mv d/sub/{n} d/x; mv d/x d/{n};" for n in range(8))
    (here / "storm.sh").write_text(f"while :; do {storm} : > begun; done")
    (here / "call.sh").write_text(
        "(setsid sh storm.sh > /dev/null 2>&1 < /dev/null &)\n"
        "for n in $(seq 500); do test -e begun && break; sleep 0.02; done; rm d/9; echo x > d/10"
    )
    before |= {path: path.read_text() for path in here.glob("*.sh")}
    shell(agent, f"cd {here}; sh call.sh")
    assert last(installation)["decidedBy"] == "containment"
    said = Person(installation).run("rollback", str(last(installation)["requestId"]))
    assert said.returncode == 0, said
    assert {path: path.read_text() for path in here.rglob("*") if path.is_file()} == before
    installation.end()
