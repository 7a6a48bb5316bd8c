"""Words that change what a message asks for."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import AROUND
from ironcurtain_proxy.auto_approver.target_call import CallSurroundings
from ironcurtain_proxy.auto_approver.target_check import veto
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.request import AccessRequest, CommandPlace
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.shell.statements import parse_command
from tests.architecture.no_io import no_io
from tests.auto_approver.test_target_check import ANY, PUSH_ROLES, SCENARIOS, call, push
from tests.examples import examples
from tests.strategies import requests
from tests.tables import table

WRITE: dict[str, tuple[ArgumentRole, ...]] = {"path": ("write-path",)}
MIXED_UP = {
    "a file for a directory": (
        "create the file /srv/x",
        call("f/create_directory", {"path": "/srv/x"}, WRITE),
    ),
    "a directory for a file": (
        "create the folder /srv/x",
        call("f/write_file", {"path": "/srv/x"}, WRITE),
    ),
    "looking for making": ("open /srv/x", call("f/create_directory", {"path": "/srv/x"}, WRITE)),
    "a tag for a branch": ("push the tag to origin", push()),
    "one text for two": (
        "write 'x' to /srv/a",
        call("f/write_file", {"path": "/srv/a", "content": "x", "mode": "x"}, WRITE),
    ),
}


@pytest.mark.parametrize(("message", "escalation"), MIXED_UP.values(), ids=MIXED_UP.keys())
def test_one_thing_is_not_taken_for_another(message: str, escalation: Escalation) -> None:
    assert veto(message, escalation, AROUND)


FORBIDDING_NAMES = {
    "a branch": ("push the branch nothing to origin", push(branch="nothing")),
    "a remote": (
        "push my changes to nowhere",
        call("git/git_push", {"remote": "nowhere"}, {"remote": ("git-remote-url",)}),
    ),
}


@pytest.mark.parametrize(
    ("message", "escalation"), FORBIDDING_NAMES.values(), ids=FORBIDDING_NAMES.keys()
)
def test_a_word_that_forbids_is_nobodys_name(message: str, escalation: Escalation) -> None:
    assert veto(message, escalation, AROUND)


def test_a_question_is_called_one() -> None:
    assert veto("push my changes to origin?", push(), AROUND) == "the message asks a question"


def test_without_a_workspace_no_repository_goes_without_saying() -> None:
    around = CallSurroundings(home=AROUND.home)
    assert veto("push my changes to origin", push(), around)


def test_an_objection_holds_nothing_that_the_agent_chose() -> None:
    """It goes to a log that people read; the words of the message are the user's own."""
    strange = call("git/git_push", {"remote": "origin", "x\n" * 300: True}, PUSH_ROLES)
    assert "\n" not in (veto("push to origin", strange, AROUND) or "")
    for one in SCENARIOS.values():
        objection = veto(one.message, one.escalation, AROUND) or ""
        assert "\n" not in objection
        assert len(objection) < 200


@settings(max_examples=examples(200), deadline=None)
@given(requests())
def test_the_check_does_no_io_and_never_raises(request: AccessRequest) -> None:
    arguments: dict[str, Json] = {
        fact.name: [value.text for value in fact.values] for fact in request.arguments
    }
    escalation = replace(ANY, request=request, tool=request.tool, arguments=arguments)
    with no_io():
        for message in ("read /a/x", "push my changes to origin", "move /a to /b"):
            veto(message, escalation, AROUND)


@pytest.mark.parametrize(
    ("message", "branch", "passes"),
    table("auto_approver/target_words.the_last_part_of_a", list[tuple[str, str, bool]]),
)
def test_the_last_part_of_a_branch_is_a_name_of_it(
    message: str, branch: str, *, passes: bool
) -> None:
    place = CommandPlace(
        workspace="/home/u/proj",
        directory="/home/u/proj",
        home="/home/u",
        branch=branch,
        push_to=("origin", branch),
        has_repository=True,
    )
    command = "git push origin HEAD"
    if message.startswith("commit"):
        command = f"git add a.py && git commit -m x && {command}"
    asked = replace(
        SCENARIOS["ask-01"].escalation,
        server="shell",
        tool="run",
        arguments={"command": command},
        command=parse_command(command),
        place=place,
        held=True,
    )
    assert (veto(message, asked, AROUND) is None) is passes
