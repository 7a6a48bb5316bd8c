"""What steers is found where a second instance may write, and nothing else there is touched.

The server's part is played by this process: the kernel tells of its writes in the same way.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.sandbox.second_instance import left_closed, staged
from ironcurtain_proxy.sandbox.watchman import Watchman

pytestmark = pytest.mark.anyio


@dataclass
class Opened:
    """A directory `outside`, in which the paths `new` and `project` were approved."""

    top: Path
    main: Watchman = field(init=False)
    watch: Watchman = field(init=False)

    def __post_init__(self) -> None:
        for name in ("home", "workspace", "outside/project", "outside/mine"):
            (self.top / name).mkdir(parents=True)
        workspace = str(self.top / "workspace")
        lookout = ControlLookout((workspace,), RemovedFiles(self.top / "state"))
        lookout.begin()
        self.main = Watchman(lookout)

    def open(self, *names: str) -> None:
        paths = [RealPath.from_text(str(self.top / "outside" / name)) for name in names]
        opening = SandboxOpening(paths=tuple(paths))
        places = left_closed(opening, str(self.top / "home"))
        self.watch = self.main.opened(places, [str(path) for path in paths])

    def put(self, name: str, text: str = "x") -> Path:
        path = self.top / "outside" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def look(self) -> list[str]:
        return [one.said for one in await self.main.look(is_last=True)]


@pytest.fixture
def o(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.main.end()


@pytest.mark.parametrize(
    "name",
    [
        *("new/.git/hooks/pre-commit", "new/.mcp.json", "new/deep/.vscode/tasks.json"),
        *("project/.claude/settings.json", "project/deep/.git/hooks/x"),
    ],
)
async def test_what_steers_is_taken_away_below_what_was_approved(o: Opened, name: str) -> None:
    o.open("new", "project")
    planted = o.put(name)
    assert len(await o.look()) == 1
    assert not planted.exists()


@pytest.mark.parametrize("name", [".claude/settings.json", ".mcp.json", "other/.git/hooks/x"])
async def test_what_another_program_puts_beside_what_was_approved_stays(
    o: Opened, name: str
) -> None:
    o.open("new", "project/deep/file")
    mine = o.put(name)
    assert await o.look() == []
    assert mine.exists()
    planted = o.put("project/deep/file/.git/hooks/x")
    assert len(await o.look()) == 1
    assert not planted.exists()


async def test_what_was_there_is_put_back_and_may_be_deleted(o: Opened) -> None:
    hook = o.put("project/.git/hooks/pre-commit", "mine")
    o.open("project")
    hook.write_text("evil")
    assert len(await o.look()) == 1
    assert hook.read_text() == "mine"
    hook.unlink()
    assert await o.look() == []
    assert not hook.exists()


@pytest.mark.parametrize("name", [".claude/hooks", ".gemini/extensions/one/two"])
async def test_of_a_directory_that_steers_only_what_is_new_is_taken_away(
    o: Opened, name: str
) -> None:
    mine = [o.put(f"project/{name}/{number}", "mine") for number in range(3)]
    o.open("project")
    planted = o.put(f"project/{name}/new")
    assert len(await o.look()) == 1
    assert not planted.exists()
    mine[0].write_text("evil")
    assert len(await o.look()) == 1
    assert mine[0].read_text() == "mine"
    mine[1].unlink()
    (mine[2].parent / "link").symlink_to("/etc")
    assert len(await o.look()) == 1
    assert {one.name for one in mine[2].parent.iterdir()} == {"0", "2"}
    assert mine[2].read_text() == "mine"


async def test_what_no_server_can_change_there_is_the_users(o: Opened) -> None:
    kept = [
        *(o.put("mine/.claude/settings.json"), o.put(".vscode/tasks.json"), o.put(".mcp.json")),
        *(o.put("project/.claude/settings.json"), o.put("HEAD"), o.put("config", "[alias]\nx=!x")),
    ]
    (o.top / "outside/.claude").symlink_to("mine/.claude")
    for name in ("objects", "refs"):
        (o.top / "outside" / name).mkdir()
    o.open("index")
    for path in kept:
        path.write_text("changed")
    o.put("mine/.git/hooks/pre-commit")
    kept[2].rename(kept[2].with_name("x"))
    (o.top / "outside/x").rename(kept[2])
    o.put("index")
    assert await o.look() == []
    assert all(path.read_text() == "changed" for path in kept)
    assert (o.top / "outside/.claude/settings.json").exists()


async def test_a_file_whose_path_somebody_saw_may_be_changed_and_no_other(o: Opened) -> None:
    o.open("new")
    seen, hook = o.top / "workspace/.pre-commit-config.yaml", o.top / "workspace/.git/hooks/x"
    hook.parent.mkdir(parents=True)
    with o.main.allowing([str(seen), str(hook)], by_person=True):
        for path in (seen, hook, seen.with_name(".envrc")):
            path.write_text("x")
        await o.main.find(o.main.lookout.look_for_later)
        assert len(await o.look()) == 2
    assert (seen.exists(), hook.exists()) == (True, False)
    assert await o.look() == []
    seen.write_text("y")
    assert len(await o.look()) == 1
    assert seen.read_text() == "x"


async def test_what_comes_at_the_very_end_is_said_later_and_then_nothing_is_looked_after(
    o: Opened,
) -> None:
    o.open("new")
    planted = o.put("new/.mcp.json")
    o.main.ended(o.watch)
    assert not planted.exists()
    o.put("new/.mcp.json")
    assert len(await o.look()) == 1
    assert await o.look() == []
    assert planted.exists()


async def test_what_cannot_be_looked_after_is_not_opened(
    o: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.sandbox.survey.MOST_DIRECTORIES", 3)
    for number in range(4):
        o.put(f"project/{number}/x")
    with pytest.raises(OSError, match="too many directories"):
        o.open("project")
    o.open("new")


def test_an_instance_starts_where_a_name_beside_is_gone(o: Opened) -> None:
    gone = o.put("gone")
    opening = SandboxOpening(paths=(RealPath.from_text(str(o.top / "outside/new")),))
    (stage,) = staged(opening, str(o.top / "home"), str(o.top / "staged"))
    gone.unlink()
    command = ["bwrap", "--ro-bind", "/", "/", *stage.mount(), "ls", stage.place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["mine", "project"]), done.stderr
