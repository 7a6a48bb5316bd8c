"""A file that no timeline holds, in a workspace where commands run unasked."""

import os
from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import done
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient
from tests.e2e.test_containment import CONFIG, contained, last, shell, why_asked

pytestmark = pytest.mark.usefixtures("sandbox")

SMALL: Message = {**CONFIG, "containment": {"undo": True, "max_bytes": 1 << 20}}


def started(installation: Installation, *closed: Path) -> tuple[RawClient, Path]:
    """A file larger than is held, and what the sandbox does not let the server write to."""
    large = installation.workspace / "data" / "large.bin"
    large.parent.mkdir()
    large.write_bytes(os.urandom(300_000))
    denied: list[Json] = [str(installation.workspace / one) for one in closed]
    workspace: list[Json] = [str(installation.workspace)]
    sandbox: Json = {"filesystem": {"allowWrite": workspace, "denyWrite": denied}}
    return contained(installation, SMALL, {"sandbox": sandbox}), large


def test_every_command_is_asked_about_and_told_why_and_only_once_what_to_do(
    installation: Installation,
) -> None:
    agent, large = started(installation)
    for number in range(2):
        assert shell(agent, f"cd {installation.workspace} && touch {number}").get("isError")
    assert f"{large} (it is too large)" in why_asked(installation)
    said = (installation.root / "stderr-0.txt").read_text()
    assert said.count("raise containment.max_bytes") == 1
    made = installation.workspace / "made"
    done(agent.call("write", {"path": str(made), "text": "x"}))
    assert last(installation)["decidedBy"] == "containment"


@pytest.mark.parametrize("closed", ["data/large.bin", "data"])
def test_a_file_that_the_sandbox_closes_is_in_no_commands_way(
    installation: Installation, closed: str
) -> None:
    agent, large = started(installation, Path(closed))
    before = large.read_bytes()
    tries = "rm -rf data; mv data elsewhere; echo x > data/large.bin; ln data/large.bin other; true"
    done(shell(agent, f"cd {installation.workspace} && touch made; {tries}"))
    assert last(installation)["decidedBy"] == "containment"
    assert (installation.workspace / "made").exists()
    left = installation.workspace.rglob("large.bin")
    assert [path.read_bytes() for path in left] == [before]
