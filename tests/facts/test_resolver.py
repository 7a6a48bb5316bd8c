"""The information point of a live session."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.facts.arguments import Refusal
from ironcurtain_proxy.facts.commands import CommandContext
from ironcurtain_proxy.facts.facts import FactReader
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.live_catalogue import build_catalogue
from ironcurtain_proxy.facts.paths import MountTable, PathReader, PathReading
from ironcurtain_proxy.facts.resolver import Resolver, ToolSource
from ironcurtain_proxy.model.annotation import Annotations, RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.request import Facts, Gathered, PathValue, Unresolvable
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Arguments, Json
from tests.facts.conftest import Tree

pytestmark = pytest.mark.anyio

READ_PATH = RoleSpec(default=("read-path",))
NOTHING = RoleSpec(default=("none",))
ANNOTATIONS: Annotations = {
    (server, tool): ToolAnnotation(server=server, tool=tool, arguments=arguments)
    for server, tool, arguments in (
        ("filesystem", "read", {"path": READ_PATH}),
        ("git", "git_status", {"path": READ_PATH, "short": NOTHING}),
        ("git", "git_set_working_dir", {"path": READ_PATH}),
        ("memory", "remember", {"text": NOTHING}),
    )
}
PATH_SCHEMA: Json = {"properties": {"path": {"type": "string"}, "short": {}, "odd": {}}}
LISTED = {
    "files": ["read", "extra"],
    "git": ["git_status", "git_set_working_dir"],
    "memory": ["remember", "forget"],
}
SERVERS = [
    ServerSpec(name="files", annotations="filesystem", command="x"),
    ServerSpec(name="git", annotations="git", command="x"),
    ServerSpec(name="memory", annotations="memory", command="x"),
]


@dataclass(frozen=True)
class Sent:
    server: str
    tool: str
    arguments: Arguments


def call(server: str, tool: str, **arguments: Json) -> Operation:
    return Operation(
        request_id=RequestId("r"),
        exposed_name=f"{server}__{tool}",
        server=server,
        tool=tool,
        arguments=arguments,
        params={"name": tool, "arguments": arguments},
    )


def resolver_of(
    paths: PathReader,
    mounts: str = "/proc/self/mountinfo",
    *,
    deadline: float = 5.0,
    asks: bool = False,
    schema: Json = PATH_SCHEMA,
    grounds: CommandContext | None = None,
) -> Resolver:
    definitions = {
        server: [
            ToolDefinition(server, tool, {"name": tool, "inputSchema": schema}) for tool in tools
        ]
        for server, tools in LISTED.items()
    }
    catalogue = build_catalogue(SERVERS, definitions, ANNOTATIONS)
    git = GitRemotes({"PATH": os.environ["PATH"]})
    tools = ToolSource(
        lookup=lambda server, tool: catalogue.by_tool.get((server, tool)),
        remotes=lambda _: git,
        trusted=frozenset({"memory"}),
        asks_about_unknown=asks,
        grounds=grounds or CommandContext(),
    )
    return Resolver(tools, FactReader(paths), MountTable(mounts), deadline=deadline)


@pytest.fixture
def resolver(tree: Tree) -> Resolver:
    return resolver_of(tree.reader())


def rule(gathered: Gathered) -> str:
    assert isinstance(gathered, Unresolvable)
    return gathered.ground.rule


async def test_a_call_is_read_against_the_name_the_policy_knows(
    tree: Tree, resolver: Resolver
) -> None:
    facts = await resolver.gather(call("files", "read", path="a.txt"))
    assert isinstance(facts, Facts)
    assert facts.request.server == "filesystem"
    assert facts.arguments == {"path": tree.path("work/a.txt")}
    assert facts.repository is None


@pytest.mark.requirement("C-21")
async def test_a_tool_that_is_not_listed_is_unknown(resolver: Resolver) -> None:
    assert rule(await resolver.gather(call("files", "nothing"))) == "unknown-tool"


async def test_a_tool_without_annotation_is_refused(resolver: Resolver) -> None:
    gathered = await resolver.gather(call("files", "extra"))
    assert rule(gathered) == "missing-annotation"
    assert isinstance(gathered, Unresolvable)
    assert "the operator has to annotate the tool" in gathered.ground.reason
    assert "ironcurtain-proxy" not in gathered.ground.reason


async def test_a_tool_without_annotation_is_read_by_its_looks_where_the_operator_is_asked(
    tree: Tree,
) -> None:
    resolver = resolver_of(tree.reader(), asks=True)
    facts = await resolver.gather(call("files", "extra", path="../out/secret.txt"))
    assert isinstance(facts, Facts)
    assert not facts.request.annotated
    assert facts.arguments == {"path": "../out/secret.txt"}
    found = {
        fact.roles: [value.text for value in fact.values]
        for fact in facts.request.arguments
        if fact.name == "path"
    }
    assert found["read-path", "write-path"] == [tree.path("out/secret.txt")]
    assert found["unclear",] == ["../out/secret.txt"]
    assert rule(await resolver.gather(call("files", "extra", path=5, more=1))) == (
        "invalid-arguments"
    )


def paths_of(facts: Facts) -> set[str]:
    values = [value for one in facts.request.arguments for value in one.values]
    return {str(value.path) for value in values if isinstance(value, PathValue)}


PATHS_SCHEMA: Json = {"properties": {"path": {"type": "array"}, "odd": {"type": "array"}}}


async def test_a_list_that_came_as_a_text_is_judged_and_sent_as_a_list(tree: Tree) -> None:
    resolver = resolver_of(tree.reader(), schema=PATHS_SCHEMA)
    facts = await resolver.gather(call("files", "read", path='["/etc/passwd", "a.txt"]'))
    assert isinstance(facts, Facts)
    assert facts.arguments == {"path": ["/etc/passwd", tree.path("work/a.txt")]}
    assert paths_of(facts) == {"/etc/passwd", tree.path("work/a.txt")}


async def test_a_list_that_came_as_a_text_is_guessed_as_a_list(tree: Tree) -> None:
    resolver = resolver_of(tree.reader(), asks=True, schema=PATHS_SCHEMA)
    facts = await resolver.gather(call("files", "extra", odd='["/etc/passwd"]'))
    assert isinstance(facts, Facts)
    assert facts.arguments == {"odd": ["/etc/passwd"]}
    assert paths_of(facts) == {"/etc/passwd"}


async def test_a_git_tool_without_a_directory_is_refused_whatever_else_is_read_otherwise(
    tree: Tree,
) -> None:
    schema: Json = {"properties": {"path": {"type": "string"}, "short": {"type": "boolean"}}}
    resolver = resolver_of(tree.reader(), schema=schema)
    gathered = await resolver.gather(call("git", "git_status", short="true"))
    assert rule(gathered) == "git-path-enrichment-failed"


async def test_an_argument_that_nobody_described_is_asked_about_where_unknown_tools_are(
    tree: Tree,
) -> None:
    """The server takes any argument; the one that is described keeps its role."""
    given: dict[str, Json] = {"path": "a.txt", "odd": "../out/secret.txt"}
    denied = await resolver_of(tree.reader(), schema={}).gather(call("files", "read", **given))
    assert rule(denied) == "invalid-arguments"
    facts = await resolver_of(tree.reader(), schema={}, asks=True).gather(
        call("files", "read", **given)
    )
    assert isinstance(facts, Facts)
    assert not facts.request.annotated
    assert facts.request.undescribed == ("odd",)
    found = {fact.roles: [one.text for one in fact.values] for fact in facts.request.arguments}
    assert found["read-path",] == [tree.path("work/a.txt")]
    assert found["read-path", "write-path"] == [tree.path("out/secret.txt")]


async def test_arguments_are_held_to_the_live_schema(resolver: Resolver) -> None:
    for arguments in ({"path": 5}, {"path": "a", "unheard": 1}, {"path": "a", "odd": 1}):
        gathered = await resolver.gather(call("files", "read", **arguments))
        assert rule(gathered) == "invalid-arguments"


async def test_a_trusted_servers_calls_are_passed_on_unread(resolver: Resolver) -> None:
    for tool in ("remember", "forget"):
        facts = await resolver.gather(call("memory", tool, anything=["x", [1]]))
        assert isinstance(facts, Facts)
        assert facts.arguments == {"anything": ["x", [1]]}
        assert facts.request.arguments == ()


async def test_a_git_call_without_a_path_works_in_the_directory_that_was_set(
    tree: Tree, resolver: Resolver
) -> None:
    gathered = await resolver.gather(call("git", "git_status"))
    assert rule(gathered) == "git-path-enrichment-failed"
    resolver.succeeded(Sent("git", "git_set_working_dir", {"path": tree.path("work/sub")}))
    facts = await resolver.gather(call("git", "git_status", path=" ", short=True))
    assert isinstance(facts, Facts)
    assert facts.arguments == {"path": tree.path("work/sub"), "short": True}
    assert facts.context == (("Working directory", tree.path("work/sub")),)
    assert [value.text for value in facts.request.arguments[0].values] == [tree.path("work/sub")]


async def test_only_a_git_server_is_given_a_path(resolver: Resolver) -> None:
    resolver.succeeded(Sent("files", "git_set_working_dir", {"path": "/srv"}))
    facts = await resolver.gather(call("files", "read"))
    assert isinstance(facts, Facts)
    assert facts.arguments == {}


class Hanging(PathReader):
    """A file system that does not answer."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.speller())
        self.released = threading.Event()

    def read(self, text: str) -> PathReading | Refusal:
        self.released.wait()
        return super().read(text)


async def test_a_file_system_that_hangs_costs_only_the_call(tree: Tree, tmp_path: Path) -> None:
    hanging = Hanging(tree)
    resolver = resolver_of(hanging, str(tmp_path / "no-table"), deadline=0.1)
    answers: list[Gathered] = []

    async def ask() -> None:
        answers.append(await resolver.gather(call("files", "read", path="a.txt")))

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(ask)
            other = await resolver.gather(call("git", "git_set_working_dir", path=5))
            assert rule(other) == "invalid-arguments"
        assert {rule(answer) for answer in answers} == {"facts-unavailable"}
        assert len(answers) == 40
    finally:
        hanging.released.set()


@pytest.mark.parametrize(
    ("said", "own", "sent"),
    [
        ({"default": "."}, None, "work"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": "./"}, None, "work"),
        ({"default": "sub/.."}, None, None),
        ({"default": "../out"}, None, "out"),
        ({"default": "."}, "out", "out"),
        ({"default": "$"}, None, None),
        ({"default": None}, None, None),
        ({"default": ["."]}, None, None),
        # What the rest of the schema refuses is not written out: the server takes the call.
        ({"default": ".", "minLength": 5000}, None, None),
    ],
)
async def test_a_path_that_a_call_leaves_out_is_the_one_that_its_schema_says(
    tree: Tree, said: Json, own: str | None, sent: str | None
) -> None:
    directory = None if own is None else tree.path(own)
    resolver = resolver_of(
        tree.reader(),
        schema={"properties": {"path": said}},
        grounds=CommandContext(workspace=tree.path("work"), directory=lambda _: directory),
    )
    facts = await resolver.gather(call("files", "read"))
    assert isinstance(facts, Facts)
    assert facts.arguments == ({} if sent is None else {"path": tree.path(sent)})
    (fact,) = facts.request.arguments
    assert [value.text for value in fact.values] == [*facts.arguments.values()]
    given = await resolver.gather(call("files", "read", path=None))
    assert isinstance(given, Facts)
    assert given.arguments == {"path": None}


async def test_a_path_that_is_left_out_stays_so_where_nobody_knows_where_it_starts(
    tree: Tree,
) -> None:
    schema: Json = {"properties": {"path": {"default": "."}}}
    facts = await resolver_of(tree.reader(), schema=schema).gather(call("files", "read"))
    assert isinstance(facts, Facts)
    assert facts.arguments == {}
