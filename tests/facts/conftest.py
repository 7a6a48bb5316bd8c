"""A small real tree with the links that have tricked path checks before."""

from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import Speller
from ironcurtain_proxy.facts.paths import PathReader


class Tree:
    """`root/work` is the workspace, `root/home` the home, `root/out` lies outside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("work/sub/deeper", "home", "out/data", "work/file:", "work/%2e%2e"):
            (root / directory).mkdir(parents=True)
        for file in ("work/a.txt", "work/sub/b.txt", "out/secret.txt", "home/notes"):
            (root / file).write_text("x")
        self.link("work/in", "sub")
        self.link("work/out", "../out/data")
        self.link("work/out_abs", str(root / "out"))
        self.link("work/dangling", "../out/new.txt")
        self.link("work/dangling_deep", "../out/no/such/dir")
        self.link("work/dangling_chain", "dangling")
        self.link("work/chain", "chain2")
        self.link("work/chain2", "in/../out")
        self.link("work/loop_a", "loop_b")
        self.link("work/loop_b", "loop_a")
        self.link("work/loop_self", "loop_self")
        self.link("work/self", ".")
        self.link("work/root", "/")
        self.link("work/cwd", "/proc/self/cwd")
        self.link("out/back", "../work/sub")

    def link(self, at: str, target: str) -> None:
        (self.root / at).symlink_to(target)

    def path(self, text: str) -> str:
        return str(self.root / text)

    def speller(self, *, workspace: bool = True, cwd: str | None = None) -> Speller:
        return Speller(
            home=self.path("home"),
            workspace=self.path("work") if workspace else None,
            cwd=cwd,
            alias="/workspace",
        )

    def reader(self, *, workspace: bool = True, cwd: str | None = None) -> PathReader:
        return PathReader(self.speller(workspace=workspace, cwd=cwd))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """One tree for all tests: none changes it."""
    return Tree(tmp_path_factory.mktemp("tree").resolve())
