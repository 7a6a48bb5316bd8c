"""Control places do not come in, in any directory and however they were made."""

import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.transactions.changes import Changes
from ironcurtain_proxy.transactions.control import Control, LedPlaces
from ironcurtain_proxy.transactions.transaction import commit, discard
from tests.tables import table
from tests.transactions.bench import Workbench, said, steps

_EVIL = "printf '[core]\\n\\tfsmonitor = ./evil.sh\\n'"
_BECOMES_ONE = "mkdir -p x/objects x/refs; echo ref: refs/heads/main > x/HEAD"


def git(w: Workbench, *words: str) -> None:
    git_in(w.ws, *words)


def git_in(place: Path, *words: str) -> None:
    # Newer versions tidy up in the background, beside the tests.
    alone = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "maintenance.auto=false")
    subprocess.run(["git", "-C", str(place), *alone, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that each test gets a copy of."""
    place = tmp_path_factory.mktemp("seed")
    (place / ".frobnicate").mkdir()
    for name in ("a", ".frobnicate/settled"):
        (place / name).write_text("old")
    git_in(place, "init", "-q", "-b", "main", ".")
    (place / ".git/branches").mkdir(exist_ok=True)  # the templates of newer versions lack it
    git_in(place, "add", "-A")
    git_in(place, "commit", "-q", "-m", "first")
    return place


@pytest.fixture
def repository(w: Workbench, seed: Path) -> Workbench:
    shutil.copytree(seed, w.ws, dirs_exist_ok=True)
    return w


@pytest.mark.parametrize(
    ("script", "is_kept"),
    table("transactions/control.later_pushes", list[tuple[str, bool]]),
)
def test_no_later_push_of_the_user_s_goes_elsewhere(
    repository: Workbench, script: str, *, is_kept: bool
) -> None:
    git(repository, "remote", "add", "origin", "https://example.com/ours.git")
    git(repository, "update-ref", "refs/remotes/origin/main", "main")
    assert ".git/config" in said(repository.run(script).kept_back) or not is_kept
    if not is_kept:
        assert not repository.run(script.replace("topic", "more").replace("fork", "f")).kept_back


def test_the_first_remote_of_a_repository_is_asked_about(repository: Workbench) -> None:
    found = repository.run("git remote add origin https://example.com/x.git")
    assert said(found.kept_back) == [".git/config"]


@pytest.mark.parametrize(
    ("script", "kept_back"),
    [
        (f"{_EVIL} >> .git/config", [".git/config"]),
        (f"ln .git/config node; {_EVIL} >> node", [".git/config"]),
        (f"{_EVIL} > x; mv x .git/config", [".git/config"]),
        ("rm .git/config", [".git/config"]),
        ("echo id > .git/hooks/pre-commit", [".git/hooks/pre-commit"]),
        (
            "rm -r .git/hooks; mkdir .git/hooks; echo id > .git/hooks/post-merge",
            [".git/hooks/post-merge"],
        ),
        ("rm -r .git/hooks; ln -s ../evil .git/hooks", [".git/hooks"]),
        ("mkdir -p .git/rebase-merge; echo x > .git/rebase-merge/strategy", [".git/rebase-merge"]),
        ("mkdir .git/sequencer; echo x > .git/sequencer/opts", [".git/sequencer"]),
        ("echo x > .git/info/attributes", [".git/info/attributes"]),
        ("echo x > .git/branches/br", [".git/branches/br"]),
        ("echo /x > .git/objects/info/alternates", [".git/objects/info/alternates"]),
        (f"git init -q lib; {_EVIL} >> lib/.git/config", ["lib/.git/config"]),
        ("git init -q lib; echo id > lib/.git/hooks/pre-commit", ["lib/.git/hooks/pre-commit"]),
        (
            f"git init -q node_modules/x; {_EVIL} >> node_modules/x/.git/config",
            ["node_modules/x/.git/config"],
        ),
        (f"git init -q --bare x; {_EVIL} >> x/config", ["x/config"]),
        (f"{_BECOMES_ONE}; {_EVIL} > x/config", ["x/config"]),
        ("mkdir objects refs; echo ref: refs/heads/main > HEAD", ["HEAD", "objects", "refs"]),
        (f"mkdir -p x/Objects x/REFS; touch x/hEAD; {_EVIL} > x/Config", ["x/Config"]),
        ("mkdir Objects refs; echo ref: refs/heads/main > head", ["Objects", "head", "refs"]),
        ("mkdir -p Objects Refs x/Refs; touch x/head x/config Objects/config config", []),
        (f"mkdir .g\u200dit; {_EVIL} > .g\u200dit/config", [".g\u200dit/config"]),
        ("mkdir \u200c.claude; touch \u200c.claude/x", ["\u200c.claude"]),
        ("echo gitdir: /somewhere > sub", []),
        ("mkdir sub; echo gitdir: ../other/.git > sub/.git", ["sub/.git"]),
        ("mkdir sub; ln -s ../other/.git sub/.git", ["sub/.git"]),
        (
            f"git init -q --bare .git/modules/a/evil; {_EVIL} >> .git/modules/a/evil/config",
            [".git/modules/a"],
        ),
        (
            f"git init -q --bare .git/worktrees/a/evil; {_EVIL} >> .git/worktrees/a/evil/config",
            [".git/worktrees/a"],
        ),
        ("mkdir .claude; echo {} > .claude/settings.json", [".claude"]),
        ("mkdir -p deep/.vscode; echo {} > deep/.vscode/tasks.json", ["deep/.vscode/tasks.json"]),
        ("mkdir -p p/q; echo {} > p/q/.mcp.json; mv p node", ["node/q/.mcp.json"]),
        ("mkdir .unheard; echo x > .unheard/of", [".unheard"]),
        ("echo more > .frobnicate/settled; echo x > .frobnicate/new", []),
        ("echo x > .envrc", [".envrc"]),
        ("ln -s a .envrc", [".envrc"]),
        ("mkdir m; mv .git/refs m; ln -s ../m .git/modules; mv m/refs .git", [".git/modules"]),
        ("mkdir m; ln -s ../m .git/worktrees", [".git/worktrees"]),
        ("printf 'aa\\t../../outside\\0' > .git/MERGE_RR", [".git/MERGE_RR"]),
        (": > .git/MERGE_RR", []),
        ("echo x > .gitignore; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml", []),
        ("mkdir .cursor", []),
        (
            "mkdir -p .venv/bin node_modules/.bin; touch node_modules/.bin/ls .venv/bin/{x,git}",
            [".venv/bin/git", "node_modules/.bin/ls"],
        ),
        ("mkdir p .venv; ln -s ../p .venv/bin; ln -s p venv", [".venv/bin", "venv"]),
        (
            "mkdir -p node_modules/.bin; ln -s ../p node_modules/x; ln -s ../x/c node_modules/.bin",
            [],
        ),
        ("printf 'A=1\\nB=\"x y\"\\n# c\\n' > .env", []),
        ("echo AIDER_LINT_CMD=x > .env; echo 'A=$(id)' > .env.local", [".env", ".env.local"]),
        ("printf 'A=1\\nid\\n' > .env", [".env"]),
        ("echo PIP_INDEX_URL=http://x > .env; echo HISTFILE=x > .env.test", [".env", ".env.test"]),
        ("echo 'LESSOPEN=\"|./x %s\"' > .env; echo 'DATABASE_URL=x' > .env.local", [".env"]),
        ("echo 3.12 > .python-version; echo lts/iron > .nvmrc; echo '~> 1.2' > .x-version", []),
        (
            "echo a/x > .ruby-version; echo path:x > .node-version; ln -s a .go-version",
            [".go-version", ".node-version", ".ruby-version"],
        ),
        (
            "mkdir z; ln -s node_modules/x x; ln -s $PWD/.venv/y y; ln -s ../z/../venv/z z/z",
            ["x", "y", "z/z"],
        ),
        ("mkdir -p p/n node_modules; ln -s ../node_modules p/node_modules; ln -s ../p p/n/p", []),
        ("ln -s ../p node_modules; mkdir -p .venv/lib; ln -s lib .venv/lib64", []),
        ("echo x > rust-toolchain.toml; echo x > flake.nix", ["flake.nix", "rust-toolchain.toml"]),
    ],
)
def test_control_places_are_kept_back_and_said(
    repository: Workbench, script: str, kept_back: list[str]
) -> None:
    before = repository.picture()
    found = repository.run(script)
    assert said(found.kept_back) == kept_back
    after = repository.picture()
    for path in map(str.encode, kept_back):
        inside = [one for one in {**before, **after} if one == path or one.startswith(path + b"/")]
        for one in inside:
            assert after.get(one) == before.get(one)
    status = subprocess.run(
        ["git", "-C", str(repository.ws), "status"], capture_output=True, check=True
    )
    assert b"evil" not in status.stderr


def test_a_link_through_a_link_of_the_users_into_a_cache_is_kept_back(
    repository: Workbench,
) -> None:
    (repository.ws / "node_modules").mkdir()
    (repository.ws / "mine").symlink_to("node_modules")
    assert said(repository.run("ln -s mine/later x").kept_back) == ["x"]


def test_a_gitlink_in_the_index_is_kept_back(repository: Workbench) -> None:
    found = repository.run(
        "git init -q n/x; cd n/x; git -c user.name=a -c user.email=b commit -q --allow-empty -m x;"
        "cd ../..; git add -f n/x 2> /dev/null"
    )
    assert said(found.kept_back) == [".git/index"]


TURNED = "git config -f lib/.git/config remote.origin.url https://example.com/x"
ANEW = "cp -a .git g; rm -r .git; rm -f g/hooks/pre-push; mv g .git"


@pytest.mark.parametrize(
    ("scripts", "kept_back"),
    [
        (("rm -r .git",), [".git"]),
        ((ANEW,), [".git"]),
        (("mv .git g; echo data > .git",), [".git", "g/hooks/pre-push"]),
        (("true", "tar cf t lib; rm -r lib", f"tar xf t; {TURNED}"), ["lib/.git/config"]),
        (("true", "tar cf t lib; rm -r lib", "tar xf t"), []),
        (("cp -a lib l; rm -r lib; mv l lib",), ["lib"]),
        (("git init -q new", "rm -r new/.git", "rm -r new"), []),
        (("chmod 0 .git/hooks",), [".git/hooks"]),
        (("git config core.filemode false",), [".git/config"]),
    ],
)
def test_the_settings_and_hooks_of_the_user_s_repositories_do_not_go_with_them(
    repository: Workbench, scripts: tuple[str, ...], kept_back: list[str]
) -> None:
    w, found = repository, Changes()
    git(w, "init", "-q", "lib")
    git(w, "config", "-f", "lib/.git/config", "remote.origin.url", "https://example.com/ours")
    w.write(".git/hooks/pre-push", "guard", 0o755)
    configs = [w.ws / one for one in (".git/config", "lib/.git/config")]
    led = LedPlaces(configurations={str(one): one.read_bytes() for one in configs})
    for script in scripts:
        approved = ["lib"] * (scripts[0] == "true" and script == scripts[1])
        found = w.run(script, led=led, approved=approved)
    assert said(found.kept_back) == kept_back
    assert (w.ws / ".git/hooks/pre-push").read_text() == "guard"
    assert configs[0].read_bytes() == led.configurations[str(configs[0])]
    assert b"/x" not in (configs[1].read_bytes() if configs[1].exists() else b"")


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_data_is_judged_when_its_directory_becomes_a_repository(
    repository: Workbench, when: str
) -> None:
    first, second = f"mkdir x; {_EVIL} > x/config", _BECOMES_ONE
    if when == "after":
        first, second = second, f"{_EVIL} > x/config"
    assert said(repository.run(first).kept_back) == []
    assert said(repository.run(second).kept_back) != []
    ran = subprocess.run(
        ["git", "-C", str(repository.ws / "x"), "config", "core.fsmonitor"],
        check=False,
        capture_output=True,
    )
    assert b"evil" not in ran.stdout


@pytest.mark.parametrize(
    "script",
    table("transactions/control.everyday", list[str]),
)
def test_everyday_commands_of_git_come_in_whole(repository: Workbench, script: str) -> None:
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    found = repository.run(f"{who}; {script}")
    assert not found.kept_back, found.kept_back
    assert not found.conflicts
    git(repository, "fsck", "--strict")
    git(repository, "status")


def test_a_history_is_not_left_in_the_middle_of_a_rebase(repository: Workbench) -> None:
    for branch in ("main", "topic"):
        if branch == "topic":
            git(repository, "switch", "-q", "-c", "topic", "HEAD~")
        repository.write("a", branch)
        git(repository, "commit", "-q", "-a", "-m", branch)
    before = {p: v for p, v in repository.picture().items() if p.startswith(b".git/")}
    found = repository.run("git -c user.name=a -c user.email=b rebase main || true")
    assert ".git/rebase-merge" in said(found.kept_back)
    assert steps(found) == ["swap a"]
    assert {p: v for p, v in repository.picture().items() if p.startswith(b".git/")} == before


def test_an_approved_place_comes_in(repository: Workbench) -> None:
    found = repository.run(
        "mkdir .claude; echo {} > .claude/settings.json; echo x > .envrc", approved=[".claude"]
    )
    assert said(found.kept_back) == [".envrc"]
    assert (repository.ws / ".claude/settings.json").read_text() == "{}\n"


_DATA = ["objects", "refs", "logs", "lfs", "rr-cache", "reftable"]


@pytest.mark.parametrize("place", [f".git/{one}/x" for one in _DATA])
def test_a_repository_made_by_pieces_in_the_data_of_another_one_is_judged(
    repository: Workbench, place: str
) -> None:
    repository.run(f"mkdir -p {place}; {_EVIL} > {place}/config")
    found = repository.run(f"cd {place}; mkdir objects refs; echo ref: refs/heads/main > HEAD")
    assert said(found.kept_back) == [f"{place}/{one}" for one in ("HEAD", "objects", "refs")]


@pytest.mark.parametrize("name", ["hooks", "scripts/lint.sh"])
def test_no_repository_comes_in_around_what_the_users_settings_would_run_there(
    w: Workbench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(w.base))
    w.write("../.gitconfig", "[core]\n\thooksPath = hooks\n\tfsmonitor = scripts/lint.sh\n")
    file = f"n/{name}/pre-commit" if name == "hooks" else f"n/{name}"
    assert not w.run(f"mkdir -p $(dirname {file}) o; echo id > {file}").kept_back
    found = w.run("git init -q n; git init -q o")
    assert "n/.git" in said(found.kept_back)
    there = [(w.ws / one).exists() for one in (file, "n/.git", "o/.git")]
    assert there == [True, False, True]


@pytest.mark.parametrize("first", [0, 1])
def test_two_commands_at_once_make_no_repository_that_neither_could_make(
    w: Workbench, first: int
) -> None:
    (w.ws / "x").mkdir()
    scripts = (f"{_EVIL} > x/config; echo b > beside", f"{_BECOMES_ONE}; echo c > other")
    views = [w.view(script) for script in scripts]
    for view in views:
        assert not view.prepare(Control()).kept_back
    assert commit(views[first].directory) == []
    late = said(commit(views[1 - first].directory))
    assert late == (["x/HEAD", "x/objects", "x/refs"] if first == 0 else ["x/config"])
    assert ((w.ws / "beside").exists(), (w.ws / "other").exists()) == (True, True)
    assert not ((w.ws / "x/config").exists() and (w.ws / "x/HEAD").exists())
    for view in views:
        view.close()
        discard(view.directory)


@pytest.mark.parametrize(
    ("setting", "script", "kept_back"),
    table("transactions/control.leads", list[tuple[str, str, list[str]]]),
)
def test_where_control_places_of_the_workspace_lead_is_control(
    repository: Workbench, setting: str, script: str, kept_back: list[str]
) -> None:
    w = repository
    for path in (
        "tools/hooks/pre-commit",
        "tools/run",
        "h/pre-commit",
        "shared.cfg",
        "linked/kept",
    ):
        w.write(path)
    key, _, value = setting.partition("=")
    if value:
        git(w, "config", key, value)
    else:
        link = w.ws / setting.removeprefix("linked ")
        link.exists() and link.rename(w.base / "away")
        link.symlink_to(w.ws / "linked")
    before = w.picture()
    found = w.run(f"{script}; echo y > a")
    assert said(found.kept_back) == kept_back
    after = w.picture()
    for place in (b"tools", b"h", b"shared.cfg", b"linked", b"absent"):
        inside = [one for one in {**before, **after} if (one + b"/").startswith(place + b"/")]
        assert [after.get(one) for one in inside] == [before.get(one) for one in inside]
    assert (w.ws / "a").read_text() == "y\n"


def test_a_directory_goes_and_comes_in_which_settings_lead_to_nothing_that_is_there(
    repository: Workbench,
) -> None:
    w = repository
    w.write(".git/hooks/pre-commit").write_text("#!/bin/sh\nPATH=$PWD/bin:$PATH\ntools/run\n")
    for path in ("bin/tool", "tools/run"):
        w.write(path)
    led = LedPlaces(frozenset([f"{w.ws}/bin/git", f"{w.ws}/tools/run"]))
    found = w.run("mv bin b; mv b bin; rm -r tools; echo x > bin/git", led=led)
    assert said(found.kept_back) == ["bin/git", "tools"]
    assert (w.ws / "tools/run").exists()


@pytest.mark.parametrize(
    "script",
    [
        "git config core.worktree ../../..",
        "git config core.worktree ..",
        "git config extensions.objectFormat sha256",
        "git init -q lib; git -C lib config core.worktree ../../..",
        "chmod 777 .git",
        "chmod 775 .git/hooks",
        "chmod 711 .claude",
    ],
)
def test_what_leads_git_elsewhere_or_lets_others_in_is_kept_back(
    repository: Workbench, script: str
) -> None:
    repository.write(".claude/settings.json").parent.chmod(0o755)
    found = repository.run(script)
    assert len(found.kept_back) == 1, found
    assert stat.S_IMODE((repository.ws / ".claude").stat().st_mode) == 0o755


def _two_faced_index() -> bytes:
    """An index with a gitlink, which reads as two plain files with names of 20 bytes."""
    head = struct.pack(">4sII", b"DIRC", 2, 2)
    plain = struct.pack(">6I", 0, 0, 0, 0, 0, 0) + struct.pack(">4I", 0o100644, 0, 0, 0)
    plain += bytes(32) + struct.pack(">H", 60) + b"1" * 60
    plain += bytes(136 - len(plain))
    linked = struct.pack(">6I", 0, 1 << 20, 0, 0, 0, 0) + struct.pack(">4I", 0o160000, 0, 0, 0)
    linked += b"\x11" * 32 + struct.pack(">H", 3) + b"n/x"
    linked += bytes(80 - len(linked))
    return head + plain + linked + bytes(32)


def test_an_index_is_read_with_the_names_of_its_repository(w: Workbench) -> None:
    git(w, "init", "-q", "--object-format=sha256", ".")
    index = w.base / "index"
    index.write_bytes(_two_faced_index())
    (w.ws / ".git/index").write_bytes(index.read_bytes())
    listed = subprocess.run(
        ["git", "-C", str(w.ws), "ls-files", "-s"], capture_output=True, check=True
    )
    assert b"160000" in listed.stdout
    (w.ws / ".git/index").unlink()
    found = w.run(f"cp {index} .git/index")
    assert said(found.kept_back) == [".git/index"]


def _entry(path: bytes, mode: int = 0o100755) -> bytes:
    fixed = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + bytes(20)
    text = fixed + struct.pack(">H", len(path)) + path
    return text + bytes((len(text) + 8) // 8 * 8 - len(text))


def _index(*paths: bytes) -> bytes:
    return struct.pack(">4sII", b"DIRC", 2, len(paths)) + b"".join(map(_entry, paths))


def _extension(name: bytes, content: bytes) -> bytes:
    return name + struct.pack(">I", len(content)) + content


def _index_read_by_length(hidden: bytes) -> bytes:
    """An index whose first entry ends elsewhere by its length than by its zero byte."""
    first = _entry(b"a")
    lying = first[:60] + struct.pack(">H", 144 - 62 - 8) + first[62:] + _entry(b"b")
    return struct.pack(">4sII", b"DIRC", 2, 2) + lying.ljust(144, b"\0") + _entry(hidden)


def _index_read_in_blocks(hidden: bytes) -> bytes:
    """An index of which git reads other entries where `index.threads` is set."""
    head = _index(b"a", b"b")
    beside = _extension(b"XXXX", _entry(hidden) + _entry(b"z"))
    places = [len(head) + 8, len(head) + 8 + len(_entry(hidden))]
    table = struct.pack(">I", 1) + b"".join([struct.pack(">II", one, 1) for one in places])
    end = _extension(b"EOIE", struct.pack(">I", len(head)) + bytes(20))
    return head + beside + _extension(b"IEOT", table) + end


_HOOK = b".git/hooks/post-checkout"
_EVIL_INDEXES = {
    **{
        path.decode(): _index(path)
        for path in (
            *(_HOOK, b"x/.GIT/config", b"../beside", b"/etc/x", b"a/../../b", b"./a", b"a//b"),
            *(b".git", b"x/.git ", b".git./hooks/a", b"git~1/config", b".git::$INDEX_ALLOCATION/a"),
        )
    },
    "read by length": _index_read_by_length(_HOOK),
    "read in blocks": _index_read_in_blocks(_HOOK),
    "extensions elsewhere": _index(b"a")
    + _extension(b"XXXX", _extension(b"link", bytes(20)))
    + _extension(b"EOIE", struct.pack(">I", len(_index(b"a")) + 8) + bytes(20)),
    "an extension without end": _index(b"a") + b"link" + struct.pack(">I", 1 << 30) + bytes(40),
}


@pytest.mark.parametrize("place", ["index", "sharedindex.0000"])
@pytest.mark.parametrize("name", _EVIL_INDEXES)
def test_an_index_that_git_would_write_elsewhere_is_kept_back(
    repository: Workbench, name: str, place: str
) -> None:
    made = repository.base / "made"
    made.write_bytes(_EVIL_INDEXES[name] + bytes(20))
    assert said(repository.run(f"cp {made} .git/{place}").kept_back) == [f".git/{place}"]


def test_an_index_too_large_to_be_read_is_kept_back(repository: Workbench) -> None:
    made = repository.base / "made"
    made.write_bytes(_index(_HOOK) + _extension(b"XXXX", b"")[:4] + struct.pack(">I", 300 << 20))
    found = repository.run(f"cp {made} .git/index; truncate -s 300M .git/index")
    assert said(found.kept_back) == [".git/index"]


@pytest.mark.parametrize("version", ["2", "4"])
def test_an_index_that_git_itself_wrote_in_blocks_comes_in(
    repository: Workbench, version: str
) -> None:
    settings = "-c index.threads=4 -c index.recordOffsetTable -c index.recordEndOfIndexEntries"
    found = repository.run(
        f"seq -f '0 %g' 40000 | sed 's/^0 /100644 {'1' * 40}\tf/' | git update-index --index-info;"
        f" git {settings} update-index --force-write-index --index-version {version};"
        " grep -qa IEOT .git/index && echo x > seen"
    )
    assert (said(found.kept_back), (repository.ws / "seen").exists()) == ([], True)


def test_a_file_in_the_place_of_a_directory_removes_no_control_place(repository: Workbench) -> None:
    hook = repository.write(".git/hooks/pre-commit", "mine", 0o755)
    found = repository.run("rm -r .git/hooks; touch .git/hooks; rm -r .frobnicate; touch a")
    assert (said(found.kept_back), hook.read_text()) == ([".git/hooks"], "mine")


def test_a_view_takes_the_names_of_its_project(w: Workbench) -> None:
    def run(settled: frozenset[str]) -> list[str]:
        view = w.view("mkdir -p .frobnicate sub/.Frobnicate .vscode; echo x | tee .frobnicate/a "
                      "sub/.Frobnicate/b .vscode/tasks.json .other")  # fmt: skip
        found = view.prepare(Control(led=LedPlaces(settled=settled)))
        if not found.is_nothing:
            commit(view.directory)
        view.close()
        discard(view.directory)
        return sorted(said(found.kept_back))

    asked = run(frozenset())
    assert asked == [".frobnicate", ".other", ".vscode/tasks.json", "sub/.Frobnicate"]
    assert run(frozenset({".frobnicate", ".vscode"})) == [".other", ".vscode/tasks.json"]


def test_a_crowd_of_kept_back_changes_hides_no_worse_one(repository: Workbench) -> None:
    found = repository.run(
        "mkdir z; for n in {1..60}; do mkdir -p a$n; touch a$n/.npmrc a$n/.unheard; done;"
        " mkdir z/.claude; for n in {1..9}; do touch z/.claude/$n; done;"
        " echo id > .git/hooks/pre-push; echo /x > .git/objects/info/alternates"
    )
    first = said(found.kept_back)[:3]
    assert first == [".git/hooks/pre-push", ".git/objects/info/alternates", "z/.claude"]
    assert found.kept_back[2].why.endswith("; it holds '1, 2, 3, 4, 5' and 4 more")
    assert [one.rpartition("/")[2] for one in said(found.kept_back)[62:64]] == [
        ".npmrc",
        ".unheard",
    ]


@pytest.mark.parametrize(
    ("script", "kept_back"),
    [
        ("echo x > json.py; mkdir t/json; echo x > t/json/__init__.py", ["json.py"]),
        ("mkdir e; echo x > e/__init__.py; ln -s e json; ln -s ../e t/run", ["json", "t/run"]),
        (
            "mkdir m; echo x > m/run.so; cp m/run.so t/run.cpython-311-x.so",
            ["t/run.cpython-311-x.so"],
        ),
        ("rm t/run.py; mkdir t/run; echo x > t/run/__main__.py", ["t/run.py", "t/run/__main__.py"]),
        ("mkdir e; echo x > e/run.cpython-311.pyc; mv e t/__pycache__", []),
        ("mkdir e; echo x > e/run.pyc; ln -s ../e t/__pycache__", ["t/__pycache__"]),
        ("rm -r c/__pycache__", []),
    ],
)
def test_modules_that_the_users_python_would_run_are_kept_back(
    repository: Workbench, script: str, kept_back: list[str]
) -> None:
    w = repository
    for path in ("t/run.py", "c/__pycache__/run.cpython-311.pyc"):
        w.write(path)
    modules = {str(w.ws): {"json", "t"}, str(w.ws / "t"): {"run"}, str(w.ws / "c"): {"run"}}
    led = LedPlaces(modules={place: frozenset(names) for place, names in modules.items()})
    found = w.run(f"{script}; echo y > a", led=led)
    assert sorted(said(found.kept_back)) == kept_back
    assert not (w.ws / "t/__pycache__/run.cpython-311.pyc").exists()
    assert (w.ws / "a").read_text() == "y\n"


@pytest.mark.parametrize("then", ["true", "echo ./evil >> .venv/bin/activate"])
def test_what_an_envrc_activates_comes_in_as_python_writes_it_alone(
    w: Workbench, then: str
) -> None:
    activate = w.ws / ".venv/bin/activate"
    script = f"{sys.executable} -m venv --without-pip --symlinks .venv; {then}"
    found = w.run(script, led=LedPlaces(paths=frozenset([str(activate)])))
    is_plain = then == "true"
    assert (said(found.kept_back) == [], activate.exists()) == (is_plain, is_plain)


@pytest.mark.parametrize(
    ("then", "stays"),
    [
        ("true", False),
        ("mkdir -p .venv/bin; echo ./evil > .venv/bin/activate", True),
        ("mkdir -p x/bin; echo ./evil > x/bin/activate; ln -s x .venv", True),
    ],
)
def test_an_environment_that_is_removed_makes_no_way_for_another(
    w: Workbench, then: str, *, stays: bool
) -> None:
    activate = w.ws / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("mine")
    led = LedPlaces(paths=frozenset([str(activate)]))
    found = w.run(f"rm -rf .venv; {then}", led=led)
    assert bool(found.kept_back) == stays
    assert not activate.exists() or activate.read_text() == "mine"
    # In two commands, too.
    w.run("rm -rf .venv", led=led)
    found = w.run(then, led=led)
    assert (bool(found.kept_back), activate.exists()) == (stays, False)


def test_an_environment_is_made_anew_in_one_command(w: Workbench) -> None:
    activate = w.ws / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("old")
    script = f"rm -rf .venv; {sys.executable} -m venv --without-pip --symlinks .venv"
    found = w.run(script, led=LedPlaces(paths=frozenset([str(activate)])))
    assert said(found.kept_back) == []
    assert "VIRTUAL_ENV" in activate.read_text()
