"""Ordinary work is not disturbed by looks at any moment, and nothing of it is put back."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sandbox.test_lookout import Watched, made

WHO = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
WORK = """
set -e
cd "$1"
git init -q -b main other; cd other; echo 1 > f; git add f; git commit -qm one; cd ..
git init -q -b main r; cd r
for n in 1 2 3; do echo $n > f; git add f; git commit -qm $n; done
git checkout -qb topic HEAD~2; echo x > g; git add g; git commit -qm x
git rebase -q main; git stash -q || true; git gc -q
git remote add o https://example.org/x; git branch -q --set-upstream-to=main
git config core.autocrlf input; git config pull.rebase true; git config merge.ff only
mkdir .vscode; echo '{"editor.tabSize": 2}' > x; mv x .vscode/settings.json
git tag -a v1 -m v1; git worktree add -q ../wt; git worktree list
cd ../wt; echo y > h; git add h; git commit -qm y; cd ..; git -C r worktree remove wt
git clone -q other cloned
git -C r -c protocol.file.allow=always submodule --quiet add ../other mod
git -C r commit -qm mod
mkdir -p r/.pytest_cache/v r/node_modules/.bin r/.github/workflows; echo x > r/.gitignore
touch r/.pytest_cache/v/x r/node_modules/.bin/x r/.github/workflows/ci.yml r/.file.swp
cd r; git checkout -qb conflict HEAD~1; echo c > f; git commit -qam c
git cherry-pick main~1 && exit 1
git status
"""


@contextmanager
def looking(w: Watched) -> Iterator[list[str]]:
    """Look without a pause, as if events never ended."""
    found: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            found.extend(one.said for one in w.lookout.look_for_later())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def test_git_works_as_ever_while_it_is_looked_at_all_the_time(tmp_path: Path) -> None:
    w = made(tmp_path.resolve())
    w.begin()
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null"}
    with looking(w) as found:
        done = subprocess.run(
            ["sh", "-c", WORK, "work", w.top],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
    assert (done.returncode, found) == (0, []), done.stderr
    assert w.look() == []
    w.lookout.close()
