"""A mistake of an agent ends what made it, not the machine or the proxy. With a real sandbox."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.confined_installation import Cell, add_hostile, done
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, text, texts

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A server whose processes may use 250 MiB, and be 200."""
    installation = Installation(tmp_path_factory.mktemp("limited"))
    limits: Message = {"memoryMb": 250, "processes": 200, "openFiles": 300}
    add_hostile(installation, "box", sandbox={"limits": limits})
    yield installation, installation.start()
    installation.end()


@pytest.mark.parametrize("command", ["tail /dev/zero", "x=$(cat /dev/zero | tr '\\0' x)"])
def test_a_command_without_end_in_memory_is_ended_and_the_agent_is_told(
    cell: Cell, command: str
) -> None:
    installation, agent = cell
    said = text(agent.call("shell", {"command": f"{command}; echo ended $?"}))
    assert said.startswith("[SANDBOX LIMIT: its processes used more than 250 MiB of memory")
    assert "was ended" in said
    assert '"limits"' in installation.session_log.read_text()
    assert done(agent.call("shell", {"command": "echo on"})).startswith("on")


def test_a_file_in_memory_without_a_name_counts_for_who_holds_it(cell: Cell) -> None:
    _, agent = cell
    # It stops by itself at 2 GiB, so that a limit that fails fills no machine.
    code = (
        "import os, time; f = os.memfd_create('x'); data = bytes(1 << 20); "
        "[os.write(f, data) for _ in range(2048)]; time.sleep(200)"
    )
    command = f'{sys.executable} -c "{code}"; echo ended $?'
    said = text(agent.call("shell", {"command": command}))
    assert said.startswith("[SANDBOX LIMIT: its processes used more than 250 MiB of memory")
    assert "ended 137" in said


def test_a_fork_bomb_ends_with_its_sandbox_and_the_server_starts_again(
    installation: Installation,
) -> None:
    # Where little memory is allowed the proxy looks ten times a second. The bomb doubles as often,
    # and stops at 4,096 processes: one without a limit takes the machine from every other test.
    limits: Message = {"memoryMb": 250, "processes": 200}
    add_hostile(installation, "box", sandbox={"limits": limits})
    agent = installation.start()
    again = "[ $1 -lt 11 ] || exec sleep 200; sleep 0.1; f $(($1 + 1)) | f $(($1 + 1)) &"
    bomb = f"renice -n 19 $$; f() {{ {again} }}; f 0; sleep 200"
    said = " ".join(texts(agent.call("shell", {"command": bomb})))
    # Of root the proxy counts the processes; of others the kernel does, and the shell cannot fork.
    assert "more than 200" in said or "fork" in said
    agent.until_listed("shell")


def test_files_in_memory_are_bounded_and_devices_are_devices(cell: Cell) -> None:
    _, agent = cell
    said = text(agent.call("shell", {"command": "df -k --output=size /dev/shm | tail -1"}))
    assert int(said.split()[0]) == 1024 * 1024
    said = text(agent.call("shell", {"command": "echo x > /dev/new; echo y > /dev/null; echo ok"}))
    assert "Read-only" in said
    assert "ok" in said


def test_open_files_are_bounded(cell: Cell) -> None:
    _, agent = cell
    assert done(agent.call("shell", {"command": "ulimit -Hn"})).split()[0] == "300"


def test_an_answer_of_gigabytes_ends_the_server_that_holds_it(cell: Cell) -> None:
    _, agent = cell
    said = " ".join(texts(agent.call("shell", {"command": "head -c 3G /dev/zero"})))
    assert "more than 250 MiB of memory" in said
    # Its tool may still be listed, so another test could meet the server before it starts again.
    while not text(agent.call("shell", {"command": "echo on"})).startswith("on"):
        agent.wait(1.0)  # or until the proxy says that the list has changed
