"""An hour of a developer's work after `init --preset coding`: what is asked, and what comes back.

Real tools, a real sandbox, a registry and a host of repositories on this machine, and a person who
answers with the commands of the product.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.coding_session import CodingSession, Step, git, picture
from tests.e2e.package_registry import HOST, Registry, open_registry
from tests.e2e.raw_client import Message

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with open_registry(tmp_path_factory.mktemp("repositories")) as found:
        yield found


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory, registry: Registry
) -> Iterator[CodingSession]:
    built = CodingSession(tmp_path_factory.mktemp("coding"), registry)
    built.set_up()
    try:
        yield built
    finally:
        built.end()


def done(step: Step) -> str:
    assert not step.result.get("isError"), step.said
    return step.said


def unasked(step: Step) -> str:
    assert step.question is None, step.question
    return done(step)


def asked(step: Step, why: str) -> str:
    assert step.question is not None, step.record
    context = step.question["context"]
    assert isinstance(context, dict)
    assert why in str(context["Not contained"])
    return done(step)


def edit(session: CodingSession, name: str, old: str, new: str) -> Step:
    edits: Message = {"oldText": old, "newText": new}
    path = str(session.workspace / name)
    return session.step("files__edit_file", {"path": path, "edits": [edits]})


# --- what stays inside


def test_local_work_is_never_asked_about_and_all_of_it_comes_back(session: CodingSession) -> None:
    here = session.workspace
    before = picture(here)
    first = edit(session, "calc/add.py", "a - b", "a + b")
    unasked(first)
    steps = [
        session.shell("make build"),
        session.shell("make test"),
        session.shell("npm test --silent"),
        session.step("git__git_add", {"repo_path": str(here), "files": ["calc/add.py"]}),
        session.step("git__git_commit", {"repo_path": str(here), "message": "Add rightly"}),
        session.shell("echo notes > notes.txt && git add -A && git commit -qm 'Take notes'"),
        session.shell("git checkout -q -b aside && echo x >> README.md && git stash"),
        session.shell("git stash drop -q"),
        session.shell("git branch -D old-idea"),
        session.shell("git reset -q --hard HEAD~1 && git clean -qfdx"),
        session.shell("rm -rf tests calc"),
        session.step(
            "files__move_file",
            {"source": str(here / "Makefile"), "destination": str(here / "GNUmakefile")},
        ),
    ]
    for step in steps:
        unasked(step)
        assert "BLOCKED" not in step.said
    by = [str(step.record["decidedBy"]) for step in steps]
    assert by.count("containment") == 9
    assert set(by) == {"containment", "kernel"}
    assert git(here, "status", "--short", "--ignored") != ""
    assert not (here / ".env").exists()
    taken_back = session.run("rollback", "--to", first.call)
    assert taken_back.returncode == 0, taken_back.stdout + taken_back.stderr
    assert picture(here) == before
    assert session.git("fsck", "--no-dangling") == ""


def test_the_sandbox_leaves_nothing_of_its_own_in_the_workspace(session: CodingSession) -> None:
    names = {path.name for path in session.workspace.iterdir()}
    status = session.git("status", "--short")
    unasked(session.shell("true"))
    assert {path.name for path in session.workspace.iterdir()} == names
    assert session.git("status", "--short") == status


def test_commands_find_the_modules_of_the_project_and_not_the_server(
    session: CodingSession,
) -> None:
    # A module of the server's own name space: were it imported, the server would be the agent's.
    unasked(session.shell("python3 -c 'import calc.add as a; print(a.add(1, 1))'"))


# --- what leaves, or is shown


def test_a_package_is_installed_from_a_registry_after_one_question(
    session: CodingSession, registry: Registry
) -> None:
    where = f"--index-url {registry.url}/simple --trusted-host {HOST}"
    install = (
        f"python3 -m pip install -q --no-compile --no-cache-dir --target vendor {where} tinylib"
    )
    before = picture(session.workspace)
    first = session.shell(f"{install} || test -e vendor/tinylib.py", "approve", "--remember")
    asked(first, "pip install reaches another machine")
    assert first.record["opened"] == [f"host {HOST}"]
    assert (session.workspace / "vendor/tinylib.py").read_text() == "ANSWER = 42\n"
    assert session.run("rollback", first.call).returncode == 0
    assert picture(session.workspace) == before
    assert "tinylib" in unasked(session.shell("ls vendor || echo tinylib gone"))


def test_npm_installs_from_a_registry_and_leaves_nothing_else_behind(
    session: CodingSession, registry: Registry
) -> None:
    names = {path.name for path in session.workspace.iterdir()}
    install = f"npm install --no-save --registry {registry.url}/npm tiny-lib"
    asked(session.shell(install, "approve"), "npm install reaches another machine")
    module = session.workspace / "node_modules/tiny-lib/index.js"
    assert module.read_text() == "module.exports = 42\n"
    added = {path.name for path in session.workspace.iterdir()} - names
    assert added == {"node_modules"}


def test_a_branch_is_pushed_after_one_question_and_main_is_asked_about_each_time(
    session: CodingSession,
) -> None:
    def refs() -> list[str]:
        return git(session.bare, "for-each-ref", "--format=%(refname:short)").split()

    assert "fix-add" not in refs()
    pushed = session.shell("git push origin fix-add", "approve", "--remember")
    asked(pushed, "git push reaches another machine")
    assert "fix-add" in refs()
    unasked(session.shell("git push origin fix-add"))
    for _ in range(2):
        asked(session.shell("git push origin HEAD:main", "approve"), "git push")
    assert "main" in refs()


def test_of_an_installation_and_a_push_what_is_on_this_machine_comes_back(
    session: CodingSession, registry: Registry
) -> None:
    session.shell("git checkout -q -b taken-back")
    before = picture(session.workspace)
    installed = session.shell(f"npm install --registry {registry.url}/npm tiny-lib", "approve")
    done(installed)
    assert "tiny-lib" in (session.workspace / "package.json").read_text()
    assert (session.workspace / "package-lock.json").exists()
    assert session.run("rollback", installed.call).returncode == 0
    # A cache, which `npm ci` makes again.
    cache = session.workspace / "node_modules"
    shutil.rmtree(cache, ignore_errors=True)
    assert picture(session.workspace) == before
    pushed = session.shell("git push -q -u origin taken-back", "approve")
    done(pushed)
    said = session.run("rollback", pushed.call)
    assert said.returncode == 0, said.stderr
    assert picture(session.workspace) == before
    assert "taken-back" in git(session.bare, "for-each-ref")


def test_local_parts_beside_an_approved_fetch_need_no_approval_and_come_back(
    session: CodingSession,
) -> None:
    # Somebody else has pushed.
    git(session.workspace, "push", "-q", str(session.bare), "HEAD:main")
    asked(session.shell("git fetch origin", "approve", "--remember"), "git fetch")
    before = picture(session.workspace)
    both = session.shell(
        "git fetch origin && git checkout -q -b again origin/main && mkdir made && rm README.md"
    )
    unasked(both)
    assert str(both.record["decidedBy"]).startswith("grant:")
    assert (session.workspace / "made").is_dir()
    assert session.run("rollback", both.call).returncode == 0
    assert picture(session.workspace) == before
    asked(session.shell("git fetch origin && python3 -c 'pass'", "approve"), "git fetch")


def test_a_page_is_fetched_after_one_question(session: CodingSession, registry: Registry) -> None:
    page: Message = {"url": f"{registry.url}/simple/tinylib/", "raw": True}
    assert "tinylib-1.0" in asked(
        session.step("fetch__fetch", page, "approve", "--remember"), "it names a host"
    )
    assert "tinylib-1.0" in unasked(session.step("fetch__fetch", page))


def test_a_secret_is_asked_about_whoever_reads_it(session: CodingSession) -> None:
    secret = session.workspace / ".env"
    read = session.step("files__read_text_file", {"path": str(secret)}, "approve")
    assert "not-a-real-token" in asked(read, "what is read cannot be taken back")
    refused = session.shell("cat .env", "deny")
    assert refused.question is not None
    assert "not-a-real-token" not in refused.said


def test_what_leaves_in_disguise_fails_and_is_asked_about_the_second_time(
    session: CodingSession, registry: Registry
) -> None:
    code = f"import urllib.request as u; print(u.urlopen('{registry.url}/simple/tinylib/').read())"
    (session.workspace / "leave.py").write_text(code)
    first = session.shell("python3 leave.py")
    assert first.question is None
    assert f"[SANDBOX BLOCKED: host {HOST}]" in first.said
    again = session.shell("python3 leave.py", "approve")
    assert "tinylib-1.0" in asked(again, f"has tried to reach {HOST}")
