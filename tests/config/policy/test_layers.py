"""The layers of policy: what each may do, and what a record can tell of them."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.config.files import RULE, TOOL, annotations, policy, write


class Place:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / ".ironcurtain"
        self.work = home / "work"
        self.work.mkdir()
        self.state.mkdir()
        self.variables = {"HOME": str(home), "ALLOWED_DIRECTORY": str(self.work)}

    def user(self, text: str) -> None:
        (self.state / "policy.yaml").write_text(text)

    def project(self, text: str) -> None:
        (self.work / ".ironcurtain").mkdir(exist_ok=True)
        (self.work / ".ironcurtain/policy.yaml").write_text(text)

    def load(self, **variables: str) -> LoadedPolicy:
        return load_policy(load_settings({**self.variables, **variables}))

    def decide(
        self, server: str, tool: str, role: ArgumentRole = "read-path", path: str = ""
    ) -> tuple[str, str]:
        facts: tuple[ArgumentFact, ...] = ()
        if path:
            text = path.replace("~", str(self.home)).replace("@", str(self.work))
            value = PathValue(text, RealPath.from_text(text))
            facts = (ArgumentFact("path", (role,), (value,)),)
        request = AccessRequest(
            server=server, tool=tool, annotated=True, has_arguments=True, arguments=facts
        )
        decision = authorize(request, self.load().policy)
        return effect_of(decision), decision.ground.rule


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def test_the_users_rules_come_before_the_shipped_ones_and_leave_the_others(place: Place) -> None:
    place.user("allow filesystem: {tools: read_file, within: ~/docs}\n")
    allowed = ("allow", "allow-filesystem-read_file")
    assert place.decide("filesystem", "read_file", path="~/docs/a") == allowed
    other = place.decide("filesystem", "read_file", path="~/other")
    assert other == ("escalate", "escalate-read-outside-workspace")
    assert place.decide("time", "get_current_time") == ("allow", "allow-time")


def test_a_users_denial_holds_in_the_workspace_too(place: Place) -> None:
    assert place.decide("filesystem", "write_file", "write-path", "@/a")[0] == "allow"
    place.user("deny filesystem: write_file\n")
    denied = ("deny", "deny-filesystem-write_file")
    assert place.decide("filesystem", "write_file", "write-path", "@/a") == denied


def test_a_project_narrows_and_never_widens(place: Place) -> None:
    place.user("allow filesystem: {tools: read_file, within: ~/docs}\ndeny time: convert_time\n")
    place.project(
        'allow fetch: "*"\nask filesystem: read_file\nask time: "*"\n'
        "deny filesystem: {tools: read_file, within: secret}\nask sqlite: read\n"
    )
    assert place.decide("fetch", "fetch")[0] == "escalate"
    asked = ("escalate", "project:ask-filesystem-read_file")
    assert place.decide("filesystem", "read_file", path="~/docs/a") == asked
    assert place.decide("filesystem", "read_file", path="@/a") == asked
    assert place.decide("time", "get_current_time") == ("escalate", "project:ask-time")
    # What nobody allows, or the user denies, a project's question does not open.
    assert place.decide("sqlite", "read") == ("deny", "default-deny")
    assert place.decide("time", "convert_time") == ("deny", "deny-time-convert_time")
    loaded = place.load()
    assert any("it has no effect here" in str(one) for one in loaded.warnings)


def test_the_first_rule_of_the_project_that_holds_is_its_answer(place: Place) -> None:
    place.project("ask filesystem: {tools: read_file, within: open}\ndeny filesystem: read_file\n")
    assert place.decide("filesystem", "read_file", path="@/open/a")[0] == "escalate"
    assert place.decide("filesystem", "read_file", path="@/a")[0] == "deny"


def test_where_both_ask_the_operators_words_are_shown(place: Place) -> None:
    place.project("ask filesystem: {tools: read_file, reason: Trust me}\n")
    outside = place.decide("filesystem", "read_file", path="~/x")
    assert outside == ("escalate", "escalate-read-outside-workspace")


def test_a_denial_of_the_base_holds_under_the_users_allow(place: Place) -> None:
    place.user("base: read-only\nallow filesystem: {tools: read_file, within: ~/docs}\n")
    assert place.decide("filesystem", "read_file", path="~/docs/a")[0] == "deny"


def test_the_words_of_a_project_are_marked_and_cut(place: Place) -> None:
    place.project("ask time: {tools: '*', reason: \"a\\e[2J\\nb" + "c" * 900 + '"}\n')
    (floor,) = place.load().policy.floors
    (rule,) = floor.rules
    assert rule.reason.startswith("The project's policy says: a [2J b")
    assert len(rule.reason) < 300
    assert rule.layer == "project"


def test_a_project_may_be_switched_off_and_a_broken_one_stops_the_start(place: Place) -> None:
    place.project("deny time: '*'\nnonsense: 1\n")
    with pytest.raises(ProblemsError, match="line 2, column 11"):
        place.load()
    write(place.state / "config.json", {"policy": {"project": False}})
    assert place.decide("time", "get_current_time")[0] == "allow"


def test_a_named_directory_is_the_whole_policy(place: Place) -> None:
    place.user("deny time: '*'\n")
    place.project("deny time: '*'\n")
    write(place.home / "mine/compiled-policy.json", policy(RULE))
    loaded = place.load(GENERATED_DIR="~/mine")
    assert [rule.name for rule in loaded.policy.rules] == ["allow-notes"]
    assert loaded.policy.floors == ()
    assert loaded.files.alone
    (place.home / "mine/policy.yaml").write_text("deny time: '*'\n")
    loaded = place.load(GENERATED_DIR="~/mine")
    assert [rule.name for rule in loaded.policy.rules] == ["deny-time", "allow-notes"]


def test_annotations_merge_tool_by_tool(place: Place) -> None:
    write(place.state / "generated/tool-annotations.json", annotations(TOOL))
    loaded = place.load()
    assert set(loaded.annotations["filesystem", "edit_file"].arguments) == {"path", "dryRun"}
    assert ("filesystem", "read_file") in loaded.annotations


def test_the_version_covers_every_layer(place: Place) -> None:
    versions = {place.load().version}
    place.user("deny time: '*'\n")
    versions.add(place.load().version)
    place.project("deny time: '*'\n")
    versions.add(place.load().version)
    place.project("deny time: '*' \n")
    versions.add(place.load().version)
    assert len(versions) == 4


def test_every_rule_knows_its_layer_and_its_place(place: Place) -> None:
    place.user("deny time: convert_time\n")
    write(place.state / "generated/compiled-policy.json", policy(RULE))
    loaded = place.load()
    assert [rule.layer for rule in loaded.policy.rules][:3] == ["user", "user", "shipped"]
    assert [Path(one.source).name for one in loaded.rules.places] == [
        "policy.yaml",
        "compiled-policy.json",
    ]
