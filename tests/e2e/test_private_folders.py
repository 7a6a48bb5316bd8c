"""A confined server has folders of the home directory for itself.

With a real sandbox and a real shell; nobody answers questions.
"""

from collections.abc import Iterator

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import HOSTILE, done
from tests.e2e.installation import QUICK, Installation
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.test_containment import contained, last, shell
from tests.program import PATIENCE

pytestmark = pytest.mark.usefixtures("sandbox")

ENTRY: Message = {"sandbox": {"filesystem": {"private": ["~/.tool", "~/.config/tool"]}}}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, RawClient]]:
    installation = Installation(tmp_path_factory.mktemp("folders"))
    for name in (".tool", ".large"):
        (installation.home / name).mkdir()
    (installation.home / ".tool" / "settings").write_text("of the user")
    yield installation, contained(installation, entry=ENTRY)
    installation.end()


def test_a_private_folder_begins_as_the_users_and_is_changed_unasked_and_apart(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    assert "of the user" in done(shell(agent, "cat ~/.tool/settings"))
    done(shell(agent, "echo mine > ~/.tool/settings && mkdir ~/.config/tool/deep"))
    assert last(installation)["decidedBy"] == "containment"
    assert "mine" in done(shell(agent, "cat ~/.tool/settings"))
    assert (installation.home / ".tool" / "settings").read_text() == "of the user"
    assert not [*(installation.home / ".config" / "tool").iterdir()]
    own = installation.home / ".ironcurtain" / "private" / "box.home"
    assert (own / ".tool" / "settings").read_text() == "mine\n"
    assert (own / ".config" / "tool" / "deep").is_dir()


def test_beside_a_private_folder_nothing_is_writable(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    for place in (".tool2", ".config/other", ".ironcurtain/private/box.home/.tool/x"):
        answer = shell(agent, f"echo x > ~/{place}")
        assert answer.get("isError"), place
        assert not (installation.home / place).exists(), place


def test_no_private_folder_hides_what_the_sandbox_closes_or_the_workspace(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    installation = Installation(tmp_path_factory.mktemp("hiding"))
    keys = installation.home / ".ssh"
    keys.mkdir()
    (keys / "id").write_text("s3cret")
    given: list[Json] = ["~/.ssh", "~/.ssh/sub", "~/workspace", "~/workspace/sub", "~/.ironcurtain"]
    agent = contained(installation, entry={"sandbox": {"filesystem": {"private": given}}})
    done(shell(agent, "echo x > made"))
    assert "s3cret" not in "".join(texts(shell(agent, "cat ~/.ssh/id; ls ~/.ironcurtain")))
    assert not (installation.home / ".ironcurtain" / "private").exists()
    assert (keys / "id").read_text() == "s3cret"
    installation.end()


@pytest.mark.parametrize("place", ["/etc", ".tool", "~", "~/", "~/../x", "~/a//b", ""])
def test_only_a_folder_below_the_home_directory_can_be_private(
    tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    installation = Installation(tmp_path_factory.mktemp("wrong"))
    installation.add_server("x", ["true"], sandbox={"filesystem": {"private": [place]}})
    client = installation.launch()
    assert client.process.wait(PATIENCE) == 2
    assert "private" in (installation.root / "stderr-0.txt").read_text()
    installation.end()


@pytest.mark.parametrize("how", ["by its package", "by its name"])
def test_a_known_server_has_its_folder_whatever_its_installed_program_is_called(
    tmp_path_factory: pytest.TempPathFactory, how: str
) -> None:
    installation = Installation(tmp_path_factory.mktemp("known"))
    tool = installation.home / ".local/share/uv/tools/serena-agent"
    (tool / "bin").mkdir(parents=True)
    (tool / "lib/python3.11/site-packages/serena_agent-1.0.dist-info").mkdir(parents=True)
    program = tool / "bin" / "serena"
    program.write_text(f"#!/bin/sh\nexec {' '.join(QUICK)} {HOSTILE}\n")
    program.chmod(0o755)
    agent = contained(
        installation, entry={"annotations": "serena" if how == "by its name" else "box"}
    )
    agent.close()
    configured = installation.servers["box"]
    assert isinstance(configured, dict)
    if how == "by its package":
        configured |= {"command": "uvx", "args": ["--from", "serena-agent", "serena"]}
    installation.annotations["serena"] = installation.annotations["box"]
    agent = installation.start()
    done(shell(agent, "mkdir ~/.serena/memories"))
    assert (installation.home / ".ironcurtain/private/box.home/.serena/memories").is_dir()
    installation.end()
