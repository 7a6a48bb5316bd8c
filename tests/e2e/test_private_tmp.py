"""A confined server that runs commands has a `/tmp` of its own.

With a real sandbox and a real shell; nobody answers questions unless a test says so.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.confined_installation import done, escalations
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, texts
from tests.e2e.test_containment import contained, last, shell

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, RawClient]]:
    installation = Installation(tmp_path_factory.mktemp("private"))
    escalations(installation)
    yield installation, contained(installation)
    installation.end()


@pytest.fixture(params=["/tmp", "/var/tmp"])
def foreign(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file of another program, in a place for temporary files."""
    with TemporaryDirectory(dir=request.param, prefix="foreign-") as directory:
        file = Path(directory, "theirs")
        file.write_text("theirs")
        yield file


def test_what_a_command_writes_in_tmp_runs_unasked_and_stays_for_the_next(
    session: tuple[Installation, RawClient], foreign: Path
) -> None:
    installation, agent = session
    made = foreign.parent.parent / f"made-by-agent-{os.getpid()}"
    done(shell(agent, f"mkdir {made} && echo one > {made}/one && cp {made}/one {made}/two"))
    assert last(installation)["decidedBy"] == "containment"
    assert "one" in done(shell(agent, f"cat {made}/two"))
    done(shell(agent, f"rm -rf {made}"))
    assert last(installation)["decidedBy"] == "containment"
    assert not made.exists()


def test_what_other_programs_keep_in_tmp_is_neither_seen_nor_changed(
    session: tuple[Installation, RawClient], foreign: Path
) -> None:
    _, agent = session
    said = done(shell(agent, f"ls -a {foreign.parent.parent}; ls {foreign}; rm -rf {foreign}"))
    assert foreign.parent.name not in said.replace(f"'{foreign}'", "")
    assert foreign.read_text() == "theirs"


def test_what_uv_and_pnpm_keep_lies_there_and_shares_no_file_with_the_workspace(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    link = "mkdir -p $UV_CACHE_DIR $PNPM_HOME; echo x > $UV_CACHE_DIR/f; ln $UV_CACHE_DIR/f . 2>&1"
    said = done(shell(agent, f"{link}; echo $UV_CACHE_DIR $PNPM_HOME $UV_LINK_MODE"))
    assert "cross-device" in said
    assert "/tmp/.cache/uv /tmp/.cache/pnpm copy" in said
    assert last(installation)["decidedBy"] == "containment"


def test_what_of_tmp_the_server_needs_is_not_writable_and_is_not_opened(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    outside = installation.root.parent / "elsewhere"
    # The directory holds the home directory, so that nobody is asked to open it.
    answer = agent.call("shell", {"command": f"echo x > {outside}"})
    assert "does not let it write there" in "".join(texts(answer))
    assert not outside.exists()


def test_a_link_in_tmp_leads_nowhere_that_the_sandbox_closes(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    target = installation.home / "precious"
    target.write_text("kept")
    # A command that names the place by itself is asked about.
    code = f"import os; os.symlink('{installation.home}', '/tmp/door')"
    (installation.workspace / "door.py").write_text(code)
    done(shell(agent, "python3 door.py; echo gone > /tmp/door/precious"))
    assert last(installation)["decidedBy"] == "containment"
    assert target.read_text() == "kept"


def test_a_tmp_that_holds_too_much_ends_containment_and_is_gone_with_the_session(
    installation: Installation,
) -> None:
    agent = contained(installation)
    done(shell(agent, "cd /tmp && mkdir -p ro/d && touch ro/f && chmod -R a-w ro && touch plain"))
    own = list((installation.home / ".ironcurtain/sessions").glob("*/box.tmp"))
    assert [one for one in own if list(one.iterdir())]
    # Names of one file: 20,000 files are a second's work.
    links = "import os; [os.link('x', str(n)) for n in range(20001)]"
    done(shell(agent, f'mkdir /tmp/many && cd /tmp/many && touch x && python3 -c "{links}"'))
    shell(agent, "echo more > /tmp/more")
    assert "/tmp holds too much" in str(last(installation)["uncontained"])
    installation.end()
    assert not list((installation.home / ".ironcurtain/sessions").glob("*/box.tmp"))
