"""A confined server that leaves behind what would run outside its sandbox.

What exists at the start it cannot change; what it makes is gone, or as before, at its answer.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import BLOCKED, Cell, add_hostile, done, refused
from tests.e2e.installation import Installation
from tests.e2e.raw_client import at, texts
from tests.program import wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

EVIL: Final = "[core]\n\tfsmonitor = ./evil\n\thooksPath = .\n"
HOOK: Final = "#!/bin/sh\ntouch /tmp/evil\n"


def git(*words: str, inside: Path) -> None:
    subprocess.run(["git", "-C", str(inside), *words], check=True, capture_output=True)


def make_repository(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", inside=place)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A workspace that is a repository, with another in it and an agent's settings."""
    installation = Installation(tmp_path_factory.mktemp("steering"))
    add_hostile(installation, "one")
    make_repository(installation.workspace)
    make_repository(installation.workspace / "deep/nested")
    (installation.workspace / ".claude").mkdir()
    (installation.workspace / ".claude/settings.json").write_text("{}")
    yield installation, installation.start()
    installation.end()


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".git/hooks/post-commit",
        "deep/nested/.git/config",
        "deep/nested/.git/hooks/pre-push",
        ".claude/settings.json",
    ],
)
def test_what_steers_git_and_agents_at_the_start_cannot_be_written(cell: Cell, name: str) -> None:
    installation, agent = cell
    file = installation.workspace / name
    before = file.read_bytes() if file.exists() else None
    assert BLOCKED in refused(agent.call("write", {"path": str(file), "text": EVIL}))
    assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.parametrize("name", [".git", "deep/nested/.git", "deep", ".git/hooks", ".claude"])
def test_a_repository_cannot_be_moved_away(cell: Cell, name: str) -> None:
    installation, agent = cell
    place = installation.workspace / name
    refused(agent.call("rename", {"source": str(place), "target": f"{place}-away"}))
    assert place.exists()


PLANTED: Final = {
    "a repository with a monitor": {
        "new/.git/HEAD": "ref: refs/heads/x\n",
        "new/.git/config": EVIL,
    },
    "a repository with a hook": {"later/.git/hooks/post-commit": HOOK},
    "a repository far below": {"a/b/c/d/.git/config": EVIL},
    "an agent's settings": {"sub/.claude/settings.json": "{}"},
    "more of an agent's settings": {"more/.claude/settings.local.json": "{}"},
    "a tool of an agent": {"sub/.opencode/tools/x.ts": "evil()"},
    "a hook of an agent": {".github/hooks/x.json": "{}"},
    "another repository by name": {"pointer/.git": "gitdir: ../elsewhere\n"},
    "a hook of a submodule": {
        ".git/modules/sub/HEAD": "x",
        ".git/modules/sub/hooks/post-checkout": HOOK,
    },
    "another configuration": {".git/commondir": "../evil\n"},
    "a configuration of a worktree": {".git/config.worktree": EVIL},
    "a repository without a name": {
        "bare/HEAD": "ref: refs/heads/x\n",
        "bare/config": EVIL,
        "bare/objects/x": "",
        "bare/refs/x": "",
    },
}
"""What a server may plant, and what of it must be gone: the last file but for a bare repository."""


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_gone_when_the_server_has_answered_and_is_said(
    cell: Cell, what: str
) -> None:
    installation, agent = cell
    code = "import pathlib\n"
    for name, text in PLANTED[what].items():
        path = str(installation.workspace / name)
        code += f"p = pathlib.Path({path!r}); p.parent.mkdir(parents=True, exist_ok=True)\n"
        code += f"p.write_text({text!r})\n"
    answer = agent.call("run", {"code": code})
    done(answer)
    names = list(PLANTED[what])
    gone = names[0] if "bare" in names[0] else names[-1]
    assert not (installation.workspace / gone).exists()
    assert "Note from ironcurtain-proxy" in texts(answer)[-1]
    assert ".ironcurtain" not in texts(answer)[-1]
    said = str(at(installation.outcomes()[-1], "putBack", 0))
    assert str(installation.workspace) in said
    assert said in Path(installation.root / "stderr-0.txt").read_text()


def test_a_clone_of_the_users_stays_and_is_looked_after(cell: Cell) -> None:
    installation, agent = cell
    origin = installation.root / "origin"
    make_repository(origin)
    git(
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@y",
        "commit",
        "--allow-empty",
        "-m",
        "x",
        inside=origin,
    )
    git("clone", "--quiet", str(origin), "cloned", inside=installation.workspace)
    config = installation.workspace / "cloned/.git/config"
    before = config.read_bytes()
    done(agent.call("pids"))
    assert config.read_bytes() == before
    done(agent.call("write", {"path": str(config), "text": before.decode() + EVIL}))
    assert config.read_bytes() == before
    hook = config.parent / "hooks/post-commit"
    done(agent.call("write", {"path": str(hook), "text": HOOK}))
    assert not hook.exists()
    git("config", "branch.feature.remote", "origin", inside=installation.workspace / "cloned")
    after = config.read_bytes()
    done(agent.call("pids"))
    assert config.read_bytes() == after != before


def test_what_the_user_does_to_a_closed_hook_directory_stays(cell: Cell) -> None:
    installation, agent = cell
    hook = installation.workspace / ".git/hooks/commit-msg"
    hook.write_text(HOOK)
    done(agent.call("pids"))
    assert hook.read_text() == HOOK


def test_settings_that_the_user_writes_meanwhile_are_kept_where_the_record_says(cell: Cell) -> None:
    installation, agent = cell
    file = installation.workspace / "mine/.claude/settings.local.json"
    file.parent.mkdir(parents=True)
    mine = '{"permissions": {"allow": ["Bash(make)"]}}'
    file.write_text(mine)
    done(agent.call("pids"))
    assert not file.exists()
    kept = Path(str(at(installation.outcomes()[-1], "putBack", 0)).rpartition(" ")[2])
    assert (kept / "settings.local.json").read_text() == mine
    assert kept.parent.parts[-2:] == (".ironcurtain", "put-back")
    warned = Path(installation.root / "stderr-0.txt").read_text()
    assert warned.count("move your own to their place before you start the proxy") == 1


def test_what_is_written_late_is_put_back_too_and_said_with_the_next_call(cell: Cell) -> None:
    installation, agent = cell
    place = installation.workspace / "late"
    code = (
        "import os, pathlib, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); [os.close(n) for n in (0, 1, 2)]; time.sleep(0.3)\n"
        f"    p = pathlib.Path({str(place)!r}, '.git', 'hooks'); p.mkdir(parents=True)\n"
        f"    (p / 'post-commit').write_text({HOOK!r})\n"
        f"    pathlib.Path({str(place)!r}, 'done').touch()\n"
    )
    done(agent.call("run", {"code": code}))
    wait_until(lambda: (place / "done").exists() and not (place / ".git").exists())
    assert "late/.git" in str(texts(agent.call("pids")))


def test_what_a_withdrawn_call_planted_is_put_back_and_stands_in_its_record(
    installation: Installation,
) -> None:
    add_hostile(installation, "one")
    agent = installation.start()
    place = installation.workspace / "planted"
    code = (
        "import pathlib, time\n"
        f"p = pathlib.Path({str(place)!r}, '.git', 'hooks'); p.mkdir(parents=True)\n"
        f"(p / 'post-commit').write_text({HOOK!r})\n"
        f"pathlib.Path({str(place)!r}, 'done').touch()\n"
        "time.sleep(600)\n"
    )
    request = agent.start_call("run", {"code": code})
    wait_until((place / "done").exists)
    agent.notify("notifications/cancelled", {"requestId": request})
    wait_until(installation.outcomes)
    # A look between the two of them has let the empty repository stay.
    assert not (place / ".git/hooks/post-commit").exists()
    assert "planted/.git" in str(at(installation.outcomes()[-1], "putBack"))


def test_a_link_in_the_way_does_not_lead_the_proxy_elsewhere(cell: Cell) -> None:
    """What is taken away is taken from the workspace, though its parent is exchanged meanwhile."""
    installation, agent = cell
    other = installation.root / "other"
    (other / ".git/hooks").mkdir(parents=True)
    (other / ".git/hooks/post-commit").write_text(HOOK)
    swapped = installation.workspace / "swapped"
    code = (
        "import os, pathlib\n"
        f"p = pathlib.Path({str(swapped)!r}); (p / '.git/hooks').mkdir(parents=True)\n"
        f"(p / '.git/hooks/post-commit').write_text('x')\n"
        f"p.rename({str(swapped) + '-1'!r}); p.symlink_to({str(other)!r})\n"
    )
    done(agent.call("run", {"code": code}))
    assert (other / ".git/hooks/post-commit").exists()
    assert not (installation.workspace / "swapped-1/.git/hooks/post-commit").exists()


def test_a_storm_of_files_hides_nothing(cell: Cell) -> None:
    """More happens than the kernel's queue of 16,384 events holds, while the proxy stands still."""
    installation, agent = cell
    here = installation.workspace
    begun, go, over = (here / name for name in ("storm-begun", "storm-go", "storm-over"))
    code = (
        "import os, pathlib, time\n"
        f"os.chdir({str(here)!r}); pathlib.Path('storm-begun').touch()\n"
        "while not os.path.exists('storm-go'): time.sleep(0.01)\n"
        "for n in range(10000):\n"
        "    os.rename('storm-begun', 'storm'); os.rename('storm', 'storm-begun')\n"
        "hooks = pathlib.Path('stormy/.git/hooks'); hooks.mkdir(parents=True)\n"
        f"(hooks / 'post-commit').write_text({HOOK!r})\n"
        "pathlib.Path('storm-over').touch()\n"
    )
    request = agent.start_call("run", {"code": code})
    wait_until(begun.exists)
    os.kill(agent.process.pid, signal.SIGSTOP)
    try:
        go.touch()
        wait_until(over.exists)
    finally:
        os.kill(agent.process.pid, signal.SIGCONT)
    done(agent.result(request))
    assert not (here / "stormy/.git").exists()
