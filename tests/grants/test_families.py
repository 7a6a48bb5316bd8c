"""Families of shell commands as grants, over projects on the disk."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.grants.families import is_never_general
from ironcurtain_proxy.model.grant import CallPattern, FamilyPattern
from tests.grants.family_projects import Project
from tests.tables import table

PACKAGE: Final = {
    "scripts": {
        "test": "node test.js && npm run helper",
        "helper": "node helper.js",
        "other": "node other.js",
        "build": "tsc",
    }
}
MAKEFILE: Final = """\
X := 1
.PHONY: test lint other
test: deps
\tgo test $(X)
deps:
\tgo mod tidy
other:
\techo other
lint:
\tgolint
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.write("package.json", orjson.dumps(PACKAGE).decode())
    made.write("Makefile", MAKEFILE)
    made.write("scripts/check.sh", "echo one\n")
    made.write("web/package.json", '{"scripts": {"test": "jest"}}')
    made.write("justfile", "x := 'y'\ntest: deps\n    cargo test\n\ndeps:\n    cargo fetch\n\n"
               "other:\n    echo other\n")  # fmt: skip
    made.write("mise.toml", '[tasks.test]\nrun = "go test"\ndepends = ["deps"]\n[tasks.deps]\n'
               'run = "x"\n[tasks.other]\nrun = "y"\n[env]\nA = "1"\n')  # fmt: skip
    return made


def test_families_are_offered_first_each_by_itself_and_then_the_identical_call(
    project: Project,
) -> None:
    test = "`go test` in ~/project and other worktrees of its repository"
    push = (
        "`git push` to origin/feature-x in ~/project and other clones of its remote "
        "(reaches example.org)"
    )
    found = [one.description for one in project.offered("go test ./... && git push origin HEAD")]
    assert found[:3] == [f"{test} and {push}", test, push]
    assert found[3].startswith("exactly this call again")
    assert len(found) == 4


def test_what_is_never_general_is_offered_as_the_identical_call_alone(project: Project) -> None:
    for command in ("git push --force origin x", "rm -rf build", "npm publish", "sudo ls",
                    "python3 -c 'print(1)'", "git push origin main", "ssh h ls",
                    "gh pr merge 1", "git push -uf origin x", "git push --forc origin x",
                    "echo $(x) | sh",
                    "git push origin refs/heads/main", "git push origin @:main",
                    "git push origin '*:*'", "./deploy.sh", "terraform apply",
                    "NAME=1; rm -rf build", "NAME=$(x); rm -rf build"):  # fmt: skip
        offered = project.offered(command)
        assert all(isinstance(one, CallPattern) for one in offered), command
        assert "unpacks" not in str(offered), command
        assert is_never_general(project.call(command)), command
    project.write("a.tar", "x")
    (one,) = project.offered("tar xf a.tar")
    assert one.description.endswith("; what `tar` unpacks is not listed here")


@pytest.mark.parametrize(
    "command", table("grants/families.whoever_remembers_the_first_choice", list[str])
)
def test_whoever_remembers_the_first_choice_is_not_asked_the_same_again(
    project: Project, command: str
) -> None:
    project.approve(command)
    assert project.covers(command)
    assert not project.covers(f"{command} --all")


def test_families_of_some_parts_are_offered_behind_the_identical_call(project: Project) -> None:
    first, *others = project.offered("git reset --hard && go test ./...")
    assert isinstance(first, CallPattern)
    assert [one.description for one in others] == [
        "`go test` in ~/project and other worktrees of its repository"
    ]


def test_a_compound_is_covered_when_each_part_was_approved_by_itself(project: Project) -> None:
    project.approve("go test ./...")
    assert not project.covers("go test ./... && go vet ./...")
    project.approve("go vet ./...")
    assert project.covers("go vet ./x && go test -v ./y 2>&1 | tail -3")
    assert project.covers("cd internal && go test ./...")
    assert not project.covers("go vet ./x && go test -v ./y && go generate ./...")


def test_the_identical_call_is_covered_and_no_other(project: Project) -> None:
    project.approve("rm -rf build")
    assert project.covers("rm -rf build")
    assert not project.covers("rm -rf build2")
    assert not project.covers("rm -rf build", "web")
    assert not project.covers("rm -rf build", sudo=True)


def test_less_of_the_output_of_an_identical_call_is_no_new_question(project: Project) -> None:
    project.approve("./deploy.sh --to x")
    for shown in ("2>&1 | tail -15", "| head", "|tail -n 5", "| tail -5\n"):
        assert project.covers(f"./deploy.sh --to x {shown}"), shown
    for other in ("| tail -f 5", "| tail log", "|| tail -5", ">| tail", "\\| tail -5", "& tail -5",
                  "| tail -5 | sh", "| tail -5 > x", "'| tail -5", "|& tail -5", "; x | tail -5",
                  "| head -5 .env", "| sh | tail -5"):  # fmt: skip
        assert not project.covers(f"./deploy.sh --to x {other}"), other
    assert not project.covers("./deploy.sh --to y | tail -5")
    project.approve("terraform apply | tail -3")
    assert project.covers("terraform apply")


def test_the_identical_push_is_not_covered_on_another_branch(project: Project) -> None:
    project.git("config", "push.default", "current")
    project.approve("git push --force")
    assert project.covers("git push --force")
    project.git("checkout", "-q", "-b", "main")
    assert not project.covers("git push --force")


def test_arguments_beside_the_command_belong_to_it(project: Project) -> None:
    project.approve("go test ./...", timeout=100)
    assert project.covers("go test ./x", timeout=5000)
    assert not project.covers("go test ./x", unsandboxed=True)
    assert not project.covers("go test ./x", uid=0)


def test_commands_that_only_read_can_be_remembered_as_such(project: Project) -> None:
    project.approve("ls | wc -l")
    assert project.covers("cat Makefile")
    assert not project.covers("cat .env")
    assert not project.covers("touch x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("python -m pytest", "python3 -m pytest"),
        ("pip install -r r.txt", "pip3 install -r r.txt"),
        ("node --version", "nodejs --version"),
    ],
)
def test_another_name_of_a_program_may_find_another_program(
    project: Project, one: str, other: str
) -> None:
    for approved, then in ((one, other), (other, one)):
        project.grants.clear()
        project.approve(approved)
        assert not project.covers(then)


def test_another_project_is_not_covered(project: Project, tmp_path: Path) -> None:
    project.approve("go test ./...")
    other = Project.made(tmp_path / "other")
    other.grants = project.grants
    assert not other.covers("go test ./...")


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("npm run test", "package.json", {"scripts": {**PACKAGE["scripts"], "other": "x"}}),
        ("npm test", "package.json", {**PACKAGE, "version": "2"}),
        ("make test", "Makefile", MAKEFILE.replace("echo other", "echo more")),
        ("make test", "Makefile", MAKEFILE.replace("lint other", "lint other more")),
        ("just test", "justfile", ("x := 'y'\ntest: deps\n    cargo test\n\n"
         "deps:\n    cargo fetch\n\nother:\n    echo more\n")),
        ("mise run test", "mise.toml", ('[tasks.test]\nrun = "go test"\ndepends = ["deps"]\n'
         '[tasks.deps]\nrun = "x"\n[tasks.other]\nrun = "z"\n[env]\nA = "1"\n')),
        ("bash scripts/check.sh", "scripts/other.sh", "echo"),
    ],
)  # fmt: skip
def test_a_change_of_another_entry_leaves_the_grant(
    project: Project, command: str, name: str, text: object
) -> None:
    project.approve(command)
    project.write(name, text if isinstance(text, str) else orjson.dumps(text).decode())
    assert project.covers(command)


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("npm run test", "package.json", {"scripts": {**PACKAGE["scripts"], "test": "evil"}}),
        ("npm run test", "package.json", {"scripts": {**PACKAGE["scripts"], "pretest": "evil"}}),
        ("npm run test", "package.json", {"scripts": {**PACKAGE["scripts"], "posttest": "evil"}}),
        ("npm test", "package.json", {"scripts": {**PACKAGE["scripts"], "helper": "evil"}}),
        ("npm test", "package.json", {"scripts": {**PACKAGE["scripts"], "prehelper": "evil"}}),
        ("npm test", "package.json", "{"),
        ("npm test", "package.json", "[]"),
        ("npm test", ".npmrc", "script-shell=./evil"),
        ("npm run test", "web/package.json", {}),
        ("npm run lint --workspace=web", "web/package.json", {"scripts": {"lint": "evil"}}),
        ("yarn test", ".yarnrc.yml", "yarnPath: evil.js"),
        ("yarn test", ".yarnrc", "yarn-path evil.js"),
        ("bun run test", ".env", "A=1"),
        ("bun run test", "bunfig.toml", "preload = ['./evil.ts']"),
        ("pnpm test", ".pnpmfile.cjs", "evil"),
        ("make test", "Makefile", MAKEFILE.replace("go test", "evil")),
        ("make test", "Makefile", MAKEFILE.replace("go mod tidy", "evil")),
        ("make test", "Makefile", MAKEFILE.replace("X := 1", "X := evil")),
        ("make test", "Makefile", "SHELL := ./evil\n" + MAKEFILE),
        ("make test", "Makefile", MAKEFILE + "test: other\n"),
        ("make test", "Makefile", MAKEFILE + "include evil.mk\n"),
        ("make test", "Makefile", MAKEFILE + "include $(X).mk\n"),
        ("make test", "Makefile", MAKEFILE + "$(eval test: other)\n"),
        ("make test", "makefile", "test:\n\tevil\n"),
        ("make test", "GNUmakefile", "test:\n\tevil\n"),
        ("make", "Makefile", MAKEFILE.replace("echo other", "echo more")),
        ("just test", "justfile", "x := 'y'\ntest: deps\n    evil\n\ndeps:\n    cargo fetch\n"),
        ("just test", "justfile", "x := 'y'\ntest: deps\n    cargo test\n\ndeps:\n    evil\n"),
        ("just test", "justfile", "import 'evil.just'\n"),
        ("just test", ".env", "RUSTC=./evil"),
        ("mise run test", "mise.toml", '[tasks.test]\nrun = "evil"\n'),
        ("mise run test", "mise.local.toml", '[tasks.test]\nrun = "evil"\n'),
        ("mise run test", ".mise-tasks/test", "evil"),
        ("mise run test", "mise.toml", ('[tasks.test]\nrun = "go test"\ndepends = ["deps"]\n'
         '[tasks.deps]\nrun = "evil"\n[tasks.other]\nrun = "y"\n[env]\nA = "1"\n')),
        ("mise run test", "mise.toml", ('[tasks.test]\nrun = "go test"\ndepends = ["deps"]\n'
         '[tasks.deps]\nrun = "x"\n[tasks.other]\nrun = "y"\n[env]\nA = "2"\n')),
        ("bash scripts/check.sh", "scripts/check.sh", "evil"),
        ("./scripts/check.sh", "scripts/check.sh", "evil"),
        ("source scripts/check.sh", "scripts/check.sh", "evil"),
        ("docker compose up", ".env", "IMAGE=evil"),
        ("docker compose up", "compose.override.yaml", "services: {}"),
        ("task test", "Taskfile.yml", "includes: {a: ./b}"),
        ("npx vite build", "vite.config.ts", "evil"),
    ],
)  # fmt: skip
def test_a_change_of_what_a_task_means_ends_the_grant(
    project: Project, command: str, name: str, text: object
) -> None:
    project.approve(command)
    assert isinstance(project.grants[0].pattern, FamilyPattern)
    assert project.covers(command) or name == "web/package.json"
    project.write(name, text if isinstance(text, str) else orjson.dumps(text).decode())
    directory = "web" if name == "web/package.json" and "workspace" not in command else ""
    assert not project.covers(command, directory)


def test_a_task_that_cannot_be_read_is_not_covered(project: Project) -> None:
    project.approve("make test")
    (project.path / "Makefile").unlink()
    (project.path / "Makefile").symlink_to("/dev/zero")
    assert not project.covers("make test")
    (project.path / "Makefile").unlink()
    (project.path / "Makefile").mkdir()
    assert not project.covers("make test")


def test_a_file_that_comes_nearer_is_another_one(project: Project) -> None:
    project.write("deep/er/x.js", "")
    project.approve("npm test", "deep/er")
    assert project.covers("npm test", "deep/er")
    assert project.covers("cd deep/er && npm test")
    project.write("deep/package.json", '{"scripts": {"test": "evil"}}')
    assert not project.covers("npm test", "deep/er")


def test_a_quoted_text_as_message_is_of_the_family(project: Project) -> None:
    project.approve("git add a && git commit -m \"$(cat <<'EOF'\none `x` $(y)\nEOF\n)\"")
    assert project.covers("git add b && git commit -m \"$(cat <<'EOF'\ntwo\n\nmore\nEOF\n)\"")
    assert project.covers("git commit -m three")
    assert not project.covers('git commit -m "$(cat <<EOF\n$(./evil)\nEOF\n)"')
    assert not project.covers('git commit -m "$(cat notes)"')
