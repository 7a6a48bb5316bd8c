"""Each thing that an agent does to a repository is taken back alone, byte for byte, and again."""

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.coding_session import CodingSession, picture
from tests.e2e.package_registry import open_registry
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")

COMMANDS = table("e2e/attacks.undone_by_hand", tuple[str, ...])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodingSession]:
    root = tmp_path_factory.mktemp("undo")
    (root / "bare").mkdir()
    with open_registry(root / "bare") as registry:
        built = CodingSession(root, registry, {"bash", "files"})
        built.set_up()
        try:
            yield built
        finally:
            built.end()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_call_is_taken_back_and_its_rollback_too(session: CodingSession, command: str) -> None:
    # Caches of another test's programs are not held, and would keep a directory that is moved.
    for cache in list(session.workspace.rglob("__pycache__")):
        shutil.rmtree(cache)
    before = picture(session.workspace)
    step = session.shell(command)
    assert step.question is None, step.question
    after = picture(session.workspace)
    assert after != before, step.said
    identifier = step.call
    for expected in (before, after, before):
        done = session.run("rollback", identifier)
        assert done.returncode == 0, done.stdout + done.stderr
        assert picture(session.workspace) == expected
        identifier = re.findall(r"rollback (\w+)$", done.stdout.strip())[-1]
    assert session.git("fsck", "--no-dangling") == ""
