"""The first sentence of a question is the real reason: what leaves, is lost, or is shown."""

import pytest

from ironcurtain_proxy.mediation.question import said_of_call
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    Facts,
    Family,
    FoundSecret,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.statements import parse_command
from tests.tables import table

WORKSPACE = RealPath.from_text("/w")
HOME = RealPath.from_text("/home/u")
PLACE = CommandPlace(
    workspace="/w",
    directory="/w",
    home="/home/u",
    branch="topic",
    push_to=("origin", "topic"),
    has_repository=True,
    hosts=(
        (Family(program=("git", "push")), ("github.com",)),
        (Family(program=("npm", "publish")), ("registry.npmjs.org",)),
        (Family(program=("pip", "install")), ("pypi.org",)),
    ),
)
MODE = (OriginReason(origin="tool-policy", ground=Ground("approval-policy:all", "all")),)

MOST_WORDS = 20


def of_command(text: str) -> tuple[str, ...]:
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    facts = Facts(
        request=request, arguments={"command": text}, command=parse_command(text), place=PLACE
    )
    return said_of_call(facts, MODE, WORKSPACE, HOME)


@pytest.mark.parametrize(("text", "first"), table("mediation/reasons.first", list[tuple[str, str]]))
def test_the_first_sentence_about_a_command_says_what_leaves_or_is_lost(
    text: str, first: str
) -> None:
    said = of_command(text)
    assert said[0].startswith(first)
    assert all(len(one.split()) <= MOST_WORDS and one.endswith(".") for one in said)


def path(text: str) -> PathValue:
    return PathValue(text, RealPath.from_text(text))


def call(
    *given: tuple[ArgumentRole, Value],
    effect: ToolEffect | None = None,
    annotated: bool = True,
    undescribed: tuple[str, ...] = (),
    pushes: bool = False,
    secrets: tuple[FoundSecret, ...] = (),
) -> Facts:
    request = AccessRequest(
        server="files",
        tool="act",
        annotated=annotated,
        undescribed=undescribed,
        has_arguments=True,
        effect=effect,
        arguments=tuple([ArgumentFact(f"a{n}", (r,), (v,)) for n, (r, v) in enumerate(given)]),
    )
    return Facts(request=request, arguments={}, branch="topic", pushes=pushes, secrets=secrets)


ORIGIN = UrlValue("origin", ("github.com/acme/x",))


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (call(("read-path", path("/etc/passwd"))), "Reads /etc/passwd, outside the workspace."),
        (call(("read-path", path("/home/u/.ssh/id_rsa"))), "Reads ~/.ssh/id_rsa, which commonly"),
        (call(("write-path", path("/srv/a"))), "Writes /srv/a, outside the workspace."),
        (call(("delete-path", path("/srv/a"))), "Deletes /srv/a, outside the workspace."),
        (call(("delete-path", path("/w/a/b"))), "Deletes a/b, in the workspace."),
        (call(("read-path", path("/w/a"))), "Reads a, in the workspace."),
        (
            call(("fetch-url", UrlValue("https://e.example/a", ("e.example",)))),
            "Fetches from e.example: act.",
        ),
        (
            call(("fetch-url", UrlValue("https://e.example/?d=1", ("e.example",)))),
            "Sends data to e.example: act.",
        ),
        (
            call(("git-remote-url", ORIGIN), pushes=True),
            "Pushes branch topic to origin (github.com/acme/x).",
        ),
        (call(("git-remote-url", ORIGIN)), "Fetches from origin (github.com/acme/x)."),
        (call(("email-address", TextValue("b@x.example"))), "Sends to b@x.example: act."),
        (call(("message", TextValue("hello"))), "Sends a text that other people will read: act."),
        (
            call(("github-owner", TextValue("acme")), ("github-repo", TextValue("x"))),
            "Acts on acme/x at GitHub: act.",
        ),
        (call(effect="sends"), "Reaches other machines or accounts: act of files."),
        (
            call(("fetch-url", UrlValue("https://e.example/a", ("e.example",))), effect="sends"),
            "May send data to e.example: act.",
        ),
        (call(effect="writes"), "May change files: act of files."),
        (call(effect="runs"), "Runs programs: act of files."),
        (call(annotated=False), "Calls files/act, a tool that nobody has described."),
        (
            call(annotated=False, undescribed=("extra",)),
            "Gives files/act an argument that nobody has described: extra.",
        ),
        (
            call(secrets=(FoundSecret("body", "private key"),)),
            "Sends a secret to files: body (private key).",
        ),
    ],
)
def test_the_first_sentence_about_a_tool_says_what_leaves_or_is_lost(
    facts: Facts, first: str
) -> None:
    said = said_of_call(facts, MODE, WORKSPACE, HOME)
    assert said[0].startswith(first)
    assert all(len(one.split()) <= MOST_WORDS and one.endswith(".") for one in said)


def test_a_host_that_only_the_sandbox_has_seen_is_named() -> None:
    said = said_of_call(
        call(effect="runs"), MODE, WORKSPACE, HOME, SandboxOpening(hosts=("evil.example",))
    )
    assert said[0] == "Reaches evil.example, from which the sandbox kept the same call."


def test_where_nothing_leaves_the_rule_of_the_operator_is_the_reason() -> None:
    rule = OriginReason(origin="policy", ground=Ground("fridays", "No changes on Fridays"))
    assert said_of_call(call(("write-path", path("/w/a"))), (rule,), WORKSPACE, HOME) == ()
