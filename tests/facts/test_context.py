"""What a git server remembers."""

import pytest

from ironcurtain_proxy.facts.arguments import ServerContexts, lacks_path
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.values import Json

STATUS = ToolAnnotation(
    server="git", tool="git_status", arguments={"path": RoleSpec(default=("read-path",))}
)


@pytest.mark.parametrize(
    ("tool", "argument"), [("git_set_working_dir", "path"), ("git_clone", "localPath")]
)
def test_a_call_that_was_carried_out_sets_the_directory(tool: str, argument: str) -> None:
    contexts = ServerContexts()
    contexts.note("git", tool, {argument: "/srv/repo"})
    assert contexts.of("git") == (("Working directory", "/srv/repo"),)
    assert contexts.completed("git", {"x": 1}) == {"x": 1, "path": "/srv/repo"}


@pytest.mark.parametrize("value", [None, 3, "relative", ["/a"]])
def test_only_an_absolute_path_is_a_directory(value: Json) -> None:
    contexts = ServerContexts()
    contexts.note("git", "git_set_working_dir", {"path": value})
    assert contexts.of("git") == ()


def test_one_server_does_not_set_the_directory_of_another() -> None:
    contexts = ServerContexts()
    contexts.note("evil", "git_set_working_dir", {"path": "/srv"})
    assert contexts.completed("git", {}) is None


@pytest.mark.parametrize("arguments", [{}, {"path": None}, {"path": ""}, {"path": " \t"}])
def test_a_path_of_blanks_is_no_path(arguments: dict[str, Json]) -> None:
    assert lacks_path(STATUS, arguments)


def test_a_tool_without_a_path_lacks_none() -> None:
    assert not lacks_path(ToolAnnotation(server="git", tool="t", arguments={}), {})
    assert not lacks_path(STATUS, {"path": "x"})
