"""A call becomes facts."""

import os
import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import plan_for
from ironcurtain_proxy.facts.facts import FactReader
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.model.annotation import (
    ArgumentRole,
    Equals,
    RoleCase,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.request import Facts, PathValue, TextValue, Unresolvable, UrlValue
from ironcurtain_proxy.model.values import Json
from tests.facts.conftest import Tree

GIT = GitRemotes({"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"})


def annotation(
    server: str = "filesystem", tool: str = "read", **roles: tuple[ArgumentRole, ...]
) -> ToolAnnotation:
    arguments = {name: RoleSpec(default=given) for name, given in roles.items()}
    return ToolAnnotation(server=server, tool=tool, arguments=arguments)


def gather(tree: Tree, tool: ToolAnnotation, **arguments: Json) -> Facts:
    gathered = FactReader(tree.reader()).read(plan_for(tool), arguments, GIT)
    assert isinstance(gathered, Facts), gathered
    return gathered


def refusal(tree: Tree, tool: ToolAnnotation, **arguments: Json) -> str:
    gathered = FactReader(tree.reader()).read(plan_for(tool), arguments, GIT)
    assert isinstance(gathered, Unresolvable), gathered
    assert gathered.ground.rule == "invalid-arguments"
    return gathered.ground.reason


def texts(facts: Facts, index: int = 0) -> list[str]:
    return [value.text for value in facts.request.arguments[index].values]


READ = annotation(path=("read-path",))
MANY = annotation(paths=("read-path",))
FETCH = annotation("fetch", "fetch", url=("fetch-url",), note=("none",))


def test_a_path_is_judged_by_its_target_and_sent_as_it_was_spelled(tree: Tree) -> None:
    """G24."""
    facts = gather(tree, READ, path="in/b.txt")
    assert texts(facts) == [tree.path("work/sub/b.txt")]
    assert facts.arguments == {"path": tree.path("work/in/b.txt")}


def test_every_path_of_a_list_is_judged_and_sent_in_order(tree: Tree) -> None:
    facts = gather(tree, MANY, paths=["a.txt", "~/notes"], other={"kept": [1]})
    assert texts(facts) == [tree.path("work/a.txt"), tree.path("home/notes")]
    assert facts.arguments == {
        "paths": [tree.path("work/a.txt"), tree.path("home/notes")],
        "other": {"kept": [1]},
    }


def test_a_file_that_a_url_names_is_read_as_its_path_is(tree: Tree) -> None:
    """A converter of documents takes `file:` URLs: no key behind one is a mere address."""
    target = tree.path("work/sub/b.txt")
    for url in (f"file://{tree.path('work/in/b.txt')}", f"FILE:{tree.path('work/in/b.txt')}"):
        facts = gather(tree, FETCH, url=url)
        (fact,) = [one for one in facts.request.arguments if one.name == "url"]
        assert fact.roles == ("read-path",)
        assert [value.text for value in fact.values] == [target]
        assert facts.arguments == {"url": f"file://{tree.path('work/in/b.txt')}"}
        assert FactReader(tree.reader()).looks_up(plan_for(FETCH), {"url": url}) is None
    assert FactReader(tree.reader()).looks_up(plan_for(FETCH), {"url": "https://a.example/"}) == 0
    mixed = gather(tree, FETCH, url=["https://a.example/", f"file://{target}"])
    assert {one.roles for one in mixed.request.arguments if one.name == "url"} == {
        ("fetch-url",),
        ("read-path",),
    }


@pytest.mark.parametrize(
    "url",
    ["file:a.txt", "file://host/a", "file:///a%2fb", "file:///a?b", " file:///a", "file:\t///a"],
)
def test_a_url_of_a_file_with_two_readings_is_refused(tree: Tree, url: str) -> None:
    assert refusal(tree, FETCH, url=url)
    assert refusal(tree, FETCH, url=[url, 3])


def test_urls_and_identifiers_are_sent_as_they_came(tree: Tree) -> None:
    """G24."""
    arguments: dict[str, Json] = {"url": "HTTPS://Example.com/a/", "note": "x"}
    facts = FactReader(tree.reader()).read(plan_for(FETCH), arguments, GIT)
    assert isinstance(facts, Facts)
    assert facts.arguments is arguments
    (url,) = facts.request.arguments[0].values
    assert url == UrlValue("https://example.com/a", ("example.com",))


def test_identifiers_are_compared_in_lower_case(tree: Tree) -> None:
    """G21. The Kelvin sign is a `k` in hosts alone."""
    tool = annotation("net", "open", owner=("github-owner",), host=("proxy-domain",))
    owner, host = gather(tree, tool, owner="\u212aIM", host="\u212aIM").request.arguments
    assert (owner.values, host.values) == ((TextValue("\u212aim"),), (TextValue("kim"),))
    tool = annotation("github", "issue", owner=("github-owner",), body=("none",))
    facts = gather(tree, tool, owner="AcMe", body="Hello")
    assert facts.request.arguments[0].values == (TextValue("acme"),)
    assert facts.request.arguments[1].values == (TextValue("Hello"),)
    assert facts.arguments["owner"] == "AcMe"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(["a.txt", ["/etc/passwd"]], id="a list in a list"),
        pytest.param(["a.txt", {"path": "/etc/passwd"}], id="an object in a list"),
        pytest.param(["a.txt", 3], id="a number in a list"),
        pytest.param([["a.txt"]], id="nothing but a list"),
        pytest.param(["a.txt", None], id="nothing in a list"),
    ],
)
@pytest.mark.parametrize("role", ["read-path", "fetch-url", "git-remote-url", "github-owner"])
def test_an_item_that_is_no_string_is_refused(tree: Tree, role: ArgumentRole, value: Json) -> None:
    """G5."""
    assert '"items"' in refusal(tree, annotation(items=(role,)), items=value)


def test_what_rides_beside_listed_addresses_is_refused(tree: Tree) -> None:
    """G5."""
    mail = annotation("mail", "send", to=("email-address",))
    assert '"to"' in refusal(tree, mail, to=["a@b.io", {"email": "c@d.io"}])
    assert gather(tree, mail, to=[{"email": "c@d.io"}]).request.arguments[0].values == ()


def test_objects_in_an_argument_without_a_role_are_nobodys_concern(tree: Tree) -> None:
    edit = annotation(path=("write-path",), edits=("none",))
    facts = gather(tree, edit, path="a.txt", edits=[{"oldText": "a"}, "b"])
    assert texts(facts, 1) == ["b"]


@pytest.mark.parametrize("value", [None, True, []])
def test_a_top_level_value_that_is_no_string_names_nothing(tree: Tree, value: Json) -> None:
    facts = gather(tree, READ, path=value)
    assert facts.request.arguments[0].values == ()
    assert facts.arguments == {"path": value}


@pytest.mark.parametrize("value", [3, 0.5, {"path": "/etc"}, {}])
@pytest.mark.parametrize("role", ["read-path", "fetch-url", "resource-uri", "sql"])
def test_what_a_server_could_convert_to_a_text_is_refused(
    tree: Tree, role: ArgumentRole, value: Json
) -> None:
    assert "must be a string" in refusal(tree, annotation(path=(role,)), path=value)


def test_the_number_of_a_thing_names_it_no_less_than_a_text(tree: Tree) -> None:
    by_number = annotation(path=("identifier",))
    assert gather(tree, by_number, path=3).request.arguments[0].values == ()
    assert "must be a string" in refusal(tree, by_number, path={"x": "y"})


def test_a_missing_argument_keeps_its_place_among_the_roles(tree: Tree) -> None:
    move = annotation(source=("read-path", "delete-path"), destination=("write-path",))
    facts = gather(tree, move, destination="a.txt")
    assert [fact.name for fact in facts.request.arguments] == ["source", "destination"]
    assert [len(fact.values) for fact in facts.request.arguments] == [0, 1]


def test_deleting_a_link_is_judged_by_both_its_ends(tree: Tree) -> None:
    """G24: what is sent is the link, so the link is what is removed."""
    purge = annotation(path=("delete-path",))
    assert texts(gather(tree, purge, path=tree.path("out/back"))) == [
        tree.path("work/sub"),
        tree.path("out/back"),
    ]
    assert len(texts(gather(tree, READ, path=tree.path("out/back")))) == 1


def test_roles_depend_on_the_arguments_as_they_came(tree: Tree) -> None:
    case = RoleCase(condition=Equals(argument="mode", value="~"), roles=("read-path",))
    tool = ToolAnnotation(
        server="s",
        tool="t",
        arguments={
            "mode": RoleSpec(default=("read-path",)),
            "target": RoleSpec(default=("fetch-url",), cases=(case,)),
        },
    )
    facts = gather(tree, tool, mode="~", target="a.txt")
    assert facts.request.arguments[1].roles == ("read-path",)
    assert isinstance(facts.request.arguments[1].values[0], PathValue)
    assert isinstance(
        gather(tree, tool, mode="x", target="a.txt").request.arguments[1].values[0], UrlValue
    )


def test_a_refusal_names_the_argument_and_not_its_value(tree: Tree) -> None:
    reason = refusal(tree, READ, path="/secret/token\0")
    assert reason == 'Argument "path" holds a control character.'


def test_a_url_with_two_readings_is_refused_where_it_is_sent(tree: Tree) -> None:
    url = "https://good.example\\@evil.example/"
    assert '"url"' in refusal(tree, FETCH, url=url)
    lenient = FactReader(tree.reader(), plain_urls_only=False).read(
        plan_for(FETCH), {"url": url}, GIT
    )
    assert isinstance(lenient, Facts)


@pytest.mark.parametrize("url", ["data:text/html,<h1>Hi</h1>", "about:blank", " DATA:,x"])
def test_a_url_without_a_host_is_refused_for_that(tree: Tree, url: str) -> None:
    said = refusal(tree, FETCH, url=url)
    assert said.startswith('Argument "url" names no host')
    assert "more than one URL" not in said


def test_what_is_no_url_stands_for_itself_and_not_for_any_host(tree: Tree) -> None:
    """G11."""
    (url,) = gather(tree, FETCH, url="localhost").request.arguments[0].values
    assert url == UrlValue("localhost", ("localhost",), ordinary=False)


PUSH = annotation("git", "git_push", path=("read-path",), remote=("git-remote-url",))
FETCH_REMOTE = annotation("git", "git_fetch", path=("read-path",), remote=("git-remote-url",))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("git").resolve() / "repo"
    command = ["git", "init", "-q", "-b", "main", str(path)]
    subprocess.run(command, check=True)
    (path / "src").mkdir()
    with (path / ".git" / "config").open("a") as file:
        file.write(
            '[remote "origin"]\n\turl = https://GitHub.com/acme/x.git\n'
            "\tpushurl = git@evil.example.com:x\n"
        )
    return path


def test_a_push_leads_where_the_repository_says(tree: Tree, repository: Path) -> None:
    """G8."""
    facts = gather(tree, PUSH, path=f"{repository}/src", remote="origin")
    assert facts.request.arguments[1].values == (
        UrlValue("origin", ("evil.example.com/x",), ordinary=True),
    )
    assert facts.arguments["remote"] == "origin"
    assert str(facts.request.repository) == str(repository)
    assert str(facts.repository) == f"{repository}/.git"
    assert facts.pushes


@pytest.mark.parametrize("remote", [None, "", []])
def test_an_omitted_remote_is_judged_by_the_default(
    tree: Tree, repository: Path, remote: Json
) -> None:
    """G9."""
    facts = gather(tree, FETCH_REMOTE, path=str(repository), remote=remote)
    assert facts.request.arguments[1].values == (
        UrlValue("https://github.com/acme/x.git", ("github.com/acme/x",)),
    )
    assert facts.arguments["remote"] == remote
    assert not facts.pushes


def test_an_unknown_tool_may_fetch_and_push(tree: Tree, repository: Path) -> None:
    """G8."""
    tool = annotation("relay", "mirror", path=("read-path",), source=("git-remote-url",))
    (value,) = gather(tree, tool, path=str(repository), source="origin").request.arguments[1].values
    assert isinstance(value, UrlValue)
    assert set(value.domains) == {"github.com/acme/x", "evil.example.com/x"}


def test_a_name_in_no_repository_is_refused_unless_nothing_is_sent(tree: Tree) -> None:
    """G8: the server would look it up in a directory of its own."""
    assert '"remote"' in refusal(tree, PUSH, remote="github.com")
    kernel = FactReader(tree.reader(), cwd="/")
    facts = kernel.read(plan_for(PUSH), {"remote": "github.com"}, GIT)
    assert isinstance(facts, Facts)


@pytest.mark.parametrize(
    ("role", "count"), [("read-path", 10_001), ("fetch-url", 10_001), ("git-remote-url", 17)]
)
def test_a_flood_of_values_is_refused(tree: Tree, role: ArgumentRole, count: int) -> None:
    assert '"items"' in refusal(tree, annotation(items=(role,)), items=["x"] * count)


def test_paths_are_counted_before_anything_is_looked_up(tree: Tree) -> None:
    reader = FactReader(tree.reader())
    assert reader.looks_up(plan_for(MANY), {"paths": ["a"] * 70}) == 70
    assert reader.looks_up(plan_for(READ), {"path": "a"}) == 1
    assert reader.looks_up(plan_for(FETCH), {"url": "x"}) == 0
    assert reader.looks_up(plan_for(PUSH), {}) is None


SHELL = annotation("shell", "run", command=("none",), cwd=("read-path",), workdir=("read-path",))


@pytest.mark.requirement("B-76")
def test_a_command_is_on_the_branch_of_the_repository_it_is_said_to_run_in(tree: Tree) -> None:
    Path(tree.path("work/sub/.git")).mkdir(parents=True)
    Path(tree.path("work/sub/.git/HEAD")).write_text("ref: refs/heads/feature/x\n")
    inside = gather(tree, SHELL, command="git commit", cwd="sub")
    assert inside.branch == "feature/x"
    assert inside.request.repository is None
    assert gather(tree, SHELL, command="git commit").branch is None
    assert gather(tree, SHELL, command="git commit", cwd="~/notes").branch is None
    both = gather(tree, SHELL, command="git commit", cwd="sub", workdir="sub")
    assert both.branch is None


def test_no_branch_is_known_in_a_directory_that_git_may_take_for_a_bare_repository(
    tree: Tree,
) -> None:
    Path(tree.path("work/bare/objects")).mkdir(parents=True)
    Path(tree.path("work/bare/HEAD")).write_text("ref: refs/heads/feature/x\n")
    assert gather(tree, SHELL, command="git commit", cwd="bare").branch is None


@pytest.mark.parametrize(
    "name", ["x" * 300, "é" * 128, "e\u0301" * 90, "a/" + "y" * 256 + "/b", "z" * 200_000]
)
@pytest.mark.parametrize("tool", ["git_fetch", "git_push", "git_pull"])
def test_a_repository_longer_than_a_name_can_be_is_denied_by_name(
    tree: Tree, tool: str, name: str
) -> None:
    git = annotation("git", tool, path=("read-path",), remote=("git-remote-url",))
    assert '"path"' in refusal(tree, git, path=name, remote="origin")
