"""What a call of a described tool does outside its sandbox, by its values and its effect."""

import pytest

from ironcurtain_proxy.approval.containment import effect_of_call
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Facts, TextValue
from ironcurtain_proxy.model.values import RealPath

WORKSPACE = RealPath.from_text("/work/app")


def named(text: str, role: ArgumentRole = "identifier") -> Facts:
    fact = ArgumentFact("id", (role,), (TextValue(text),))
    request = AccessRequest(
        server="tasks", tool="mark", annotated=True, has_arguments=True, arguments=(fact,),
        effect="writes",
    )  # fmt: skip
    return Facts(request=request, arguments={"id": text})


@pytest.mark.parametrize("text", ["task-1", "42", "owner/repo", "a b", "v1..v2"])
def test_a_name_of_the_servers_own_stays_inside(text: str) -> None:
    assert effect_of_call(named(text), WORKSPACE).effect == "local"


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "~/.netrc", " /x", "../x", "./x", "x/../y", "x/..", "file://x", "a://b"]
)
def test_a_name_that_looks_like_a_path_or_a_url_is_asked_about(text: str) -> None:
    found = effect_of_call(named(text), WORKSPACE)
    assert (found.effect, found.reason) == ("beyond", "it is not clear what id names")


@pytest.mark.parametrize("role", ["identifier", "unclear"])
@pytest.mark.parametrize(
    "text", [".env", "id_rsa", "config/.ENV", "certs\\server.key", ".en[v]", ".e*", "x\n.netrc"]
)
def test_a_name_of_a_secret_file_is_asked_about(text: str, role: ArgumentRole) -> None:
    found = effect_of_call(named(text, role), WORKSPACE)
    assert (found.effect, found.reason) == ("beyond", "it is not clear what id names")


def test_a_path_without_a_role_is_asked_about_although_the_tool_only_reads() -> None:
    assert effect_of_call(named("/etc/passwd", "unclear"), WORKSPACE).effect == "beyond"
    assert effect_of_call(named("a summary", "unclear"), WORKSPACE).effect == "local"
