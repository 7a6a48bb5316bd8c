"""Whatever a shell does to a workspace, going back to the point before it brings all of it back."""

# ruff: noqa: E501  a command on one line
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.config.settings import TimelineSettings
from ironcurtain_proxy.snapshots.keeper import Limits
from tests.program import PATIENCE
from tests.snapshots.timeline.workspace_fixture import Picture, Timelined, picture

_SEED = r"""
mkdir -p src/deep/er keep target/src '.hidden dir' && umask 022
for n in 1 2 3 4 5; do echo "file $n" > src/$n.txt; echo "deep $n" > src/deep/er/$n; done
echo SECRET=1 > .env; chmod 600 .env; echo x > 'keep/a
b'; echo y > "keep/$(printf '\377\376')"; echo Z > keep/Case; echo z > keep/case
ln src/1.txt keep/linked; ln -s ../src keep/up; ln -s nowhere keep/dangling; mkfifo keep/pipe
truncate -s 1M keep/sparse; echo end >> keep/sparse; head -c 300000 /dev/zero > keep/large
mkdir keep/empty; chmod 700 keep/empty; echo code > target/src/main.c; : > keep/nothing
git init -q --template=; git config user.name x; git config user.email x@y; git config commit.gpgsign false
echo '*.log' > .gitignore; echo log > ignored.log; git add -A src .gitignore; git commit -qm one
git branch target/one; git branch node_modules/two; echo two >> src/2.txt; git commit -qam two
git tag t; echo staged > src/3.txt; git add src/3.txt; echo stashed > src/4.txt; git stash -q
git init -q --template= inner; git -C inner config user.name x; git -C inner config user.email x@y
echo i > inner/i; git -C inner add i; git -C inner commit -qm inner
"""

COMMANDS = r"""
rm -rf src
rm -rf .git
rm -rf * .[!.]*
find . -delete
git clean -fdxq
git reset -q --hard HEAD~1
git checkout -q -f HEAD~1
git branch -D target/one node_modules/two
git stash drop -q
git stash clear
git stash pop -q
git tag -d t
git reflog expire --expire=now --all; git gc -q --prune=now
git reset -q --hard HEAD~1; git reflog expire --expire=now --all; git gc -q --aggressive --prune=now
git update-ref -d HEAD
git symbolic-ref HEAD refs/heads/none
git repack -adq; git prune --expire=now
git checkout -q --orphan new; git rm -rfq .
git commit -q --amend -m other --allow-empty
git filter-branch -f --env-filter 'GIT_AUTHOR_NAME=y' HEAD
git worktree add -q tree target/one; git worktree remove --force tree
git -C inner update-ref -d HEAD; git -C inner gc -q --prune=now
rm -f .git/index .git/HEAD .git/config
rm -rf .git/objects
rm -rf .git/refs/heads/target
rm -rf .git/logs .git/packed-refs
mv .git elsewhere; rm -rf elsewhere
mv inner src/inner; rm -rf src
mv src target; rm -rf target
mv src node_modules; rm -rf node_modules
mv .env node_modules
mkdir node_modules; mv .env keep node_modules/; rm -rf node_modules
mv .git node_modules; rm -rf node_modules
touch Cargo.toml; rm -rf target
touch target/CACHEDIR.TAG; rm -rf target/src
mkdir .venv; mv src .venv/src; echo x > .venv/src/1.txt; mv .venv/src src; rmdir .venv
: > src/1.txt
echo x > keep/linked
truncate -s 1 src/2.txt; truncate -s 7 src/2.txt
python3 -c "import mmap; f=open('src/1.txt','r+b'); m=mmap.mmap(f.fileno(),0); m[:4]=b'EVIL'"
python3 -c "import mmap,os; f=open('keep/linked','r+b'); m=mmap.mmap(f.fileno(),0); f.close(); m[:1]; m[:4]=b'EVIL'; os.utime('keep/linked',ns=(1,1))"
dd if=/dev/zero of=keep/large bs=1 seek=100000 count=5 conv=notrunc status=none
dd if=/dev/zero of=keep/sparse bs=1 seek=100000 count=5 conv=notrunc status=none
fallocate -p -o 0 -l 65536 keep/large
fallocate -d keep/large
cp --sparse=always keep/large keep/l2; mv keep/l2 keep/large
cp --sparse=never keep/sparse keep/l2; mv keep/l2 keep/sparse
shred -u src/1.txt src/2.txt
shred -n1 .env
sed -i s/file/evil/ src/*.txt
touch -r src/1.txt ref; echo evil > src/1.txt; touch -r ref src/1.txt
chmod 000 src src/deep keep
chmod -R 000 .
chmod 4000 .env; chmod 1777 src
chmod 000 src/1.txt; rm -f src/1.txt
setfattr -n user.evil -v 1 src/1.txt
ln -sf /etc/passwd src/1.txt
rm src/1.txt; mkdir src/1.txt; touch src/1.txt/x
rm -r src; ln -s /tmp src
rm -r src; mkfifo src
rm -r src; touch src
rm keep/pipe; echo x > keep/pipe
rm keep/up; mkdir keep/up; cp src/*.txt keep/up
ln src/5.txt keep/five; rm src/5.txt; echo evil > keep/five
ln -f src/2.txt src/3.txt; ln -f src/2.txt src/4.txt; echo evil > src/4.txt
rm keep/linked; cp src/1.txt keep/linked
mv keep/Case keep/tmp; mv keep/case keep/Case; mv keep/tmp keep/case
mv src/1.txt src/x; mv src/2.txt src/1.txt; mv src/x src/2.txt
mv src a; mv keep src; mv a keep
python3 -c "import ctypes; ctypes.CDLL(None).renameat2(-100,b'src',-100,b'keep',2)"
python3 -c "import os; [os.rename('src/1.txt','keep/z') or os.rename('keep/z','src/1.txt') for _ in range(3000)]; os.unlink('src/1.txt')"
rm -rf keep/empty; mkdir keep/empty
rmdir keep/empty; touch keep/empty
rm "keep/$(printf '\377\376')"; echo evil > "keep/$(printf '\377')"
rm -rf 'keep/a
b'
d=.; for n in $(seq 60); do d=$d/$(printf 'x%.0s' $(seq 60)); done; mkdir -p $d; echo x > $d/f; rm -rf src
python3 -c "import os; [(os.mkdir(e), os.rename('src', e + '/src'), os.rename(e + '/src', 'src'), os.rmdir(e)) for e in map('e{}'.format, range(400))]"; rm -rf src
seq 1 3000 | xargs touch; rm -rf src keep
seq 1 300 | xargs mkdir; for n in 1 2 3; do mv src $n/src$n; mv $n/src$n src; done; rm -rf src [0-9]*
tar cf all.tar src keep; rm -rf src keep; tar xf all.tar; rm all.tar; : > src/1.txt
rsync -a --delete keep/empty/ src/
(sleep 0.05; rm -rf src) & wait
setsid sh -c 'rm -rf src' & wait
exec 9< src/1.txt; rm -rf src; cat <&9
cd src; rm -rf ../src; touch here 2>/dev/null; cd ..; mkdir src
head -c 20000000 /dev/urandom > big; rm -rf src; rm big
truncate -s 5T huge; rm -rf src; rm huge
: > keep/nothing; echo x >> keep/nothing; rm -f ignored.log .gitignore
"""


def commands() -> list[str]:
    found: list[str] = []
    for line in COMMANDS.strip().split("\n"):
        if line == "b'":
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The workspace; each test leaves it as it was."""
    made = tmp_path_factory.mktemp("destroyed")
    run(made, _SEED)
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", str(made)], check=False)


@pytest.fixture(scope="module")
def before(top: Path) -> Picture:
    """What each test finds, because the one before it left just that."""
    return picture(top)


@pytest.fixture
def w(top: Path, tmp_path: Path) -> Timelined:
    """A timeline of the test's own: in one of all tests, each would read what all before it did."""
    return Timelined(top, tmp_path, Limits(caches=TimelineSettings().caches))


def run(top: Path, command: str) -> str:
    hidden = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=top,
        env={**os.environ, **hidden, "FILTER_BRANCH_SQUELCH_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PATIENCE,
    )
    return done.stderr


@pytest.mark.parametrize("command", commands())
def test_what_a_command_destroys_comes_back(w: Timelined, before: Picture, command: str) -> None:
    point = w.mark()
    said = run(w.top, command)
    after = w.picture()
    w.keeper.end_call(point)
    w.back(point, rewind=True, force=True)
    assert w.picture() == before
    if after == before:
        pytest.skip(f"it changes nothing here: {said}")
