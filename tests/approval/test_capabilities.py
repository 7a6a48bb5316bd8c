"""What a call needs, and what a profile says of it."""

from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import (
    AUTONOMOUS,
    SUPERVISED,
    Level,
    Profile,
    ProfileAnswer,
    described,
    detect_isolation,
    effective_profile,
    level_of,
    verdict,
)
from ironcurtain_proxy.approval.overlay import capabilities_of
from ironcurtain_proxy.model.annotation import (
    CAPABILITIES,
    ROLE_TRAITS,
    ArgumentRole,
    Isolation,
    ToolDeclaration,
)
from ironcurtain_proxy.model.values import Json
from tests.approval.subjects import (
    capability_sets,
    declarations,
    hint_sets,
    profiles,
    role_sets,
    unhurried,
)
from tests.tables import table

NOTHING: frozenset[str] = frozenset()
TOOL = frozenset({"s/tool", "tool"})

OWN = Profile(
    name="own",
    rules={
        "fs.read": "allow",
        "fs.write": "deny",
        "fs.write.within_base": "allow",
        "proc.exec": "approve",
        "attachments.send": "allow",
        "fs": "allow",
        "fs.delete:/tmp/**": "allow",
        "secrets.access:vault": "deny",
    },
)

LEVELS: Final = table("approval/tables.levels", tuple[tuple[str, Level, Level, Level], ...])


@pytest.mark.requirement("D-22", "D-34", "D-36", "D-37", "D-38", "D-39", "D-40", "D-41")
@pytest.mark.parametrize(("capability", "autonomous", "supervised", "own"), LEVELS)
def test_a_profile_maps_each_capability_to_one_level(
    capability: str, autonomous: Level, supervised: Level, own: Level
) -> None:
    found = [level_of(capability, profile) for profile in (AUTONOMOUS, SUPERVISED, OWN)]
    assert found == [autonomous, supervised, own]


@pytest.mark.requirement("D-15", "D-16", "D-17", "D-18", "D-19", "D-20", "D-21")
@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_each_capability_can_be_declared_and_mapped_to_every_level(
    capability: str, level: Level
) -> None:
    declared = ToolDeclaration(tool_id="s/tool", capabilities=(capability,))
    needed = capabilities_of(declared, NOTHING, (), None, NOTHING)
    profile = Profile(name="p", rules={capability: level})
    said = verdict(TOOL, needed, profile)
    assert said == ProfileAnswer(
        level=level, capabilities=() if level == "allow" else (capability,)
    )


@pytest.mark.requirement("D-40")
@unhurried
@given(profiles, st.text(max_size=20))
def test_a_name_that_no_rule_names_is_never_allowed(profile: Profile, name: str) -> None:
    profile = replace(profile, rules={})
    assert level_of(name, profile) == profile.default


ROLES: Final = table("approval/tables.roles", tuple[tuple[ArgumentRole, str], ...])


@pytest.mark.requirement("D-10")
def test_an_argument_says_by_its_role_what_the_call_needs() -> None:
    assert [
        (role, expected)
        for role, expected in ROLES
        if capabilities_of(None, NOTHING, [role], None, NOTHING) != set(expected.split())
    ] == []


def test_every_role_has_its_capabilities() -> None:
    assert set(ROLE_TRAITS) == set(get_args(ArgumentRole))


@pytest.mark.requirement("D-10")
def test_what_a_call_needs_is_the_union_of_all_that_is_said_of_it() -> None:
    needed = capabilities_of(
        ToolDeclaration(tool_id="s/tool", capabilities=("data.user", "fs.read.notes")),
        frozenset({"secrets.access"}),
        ["delete-path"],
        {"openWorldHint": True},
        frozenset({"proc.exec"}),
    )
    assert needed == {
        *("data.user", "fs.read.notes", "secrets.access", "fs.delete", "net.egress", "proc.exec")
    }


@pytest.mark.parametrize(
    ("hints", "added"),
    [
        ({"destructiveHint": True}, {"fs.write"}),
        ({"openWorldHint": True}, {"net.egress"}),
        ({"destructiveHint": False, "openWorldHint": False}, set()),
        ({"destructiveHint": "true", "openWorldHint": 1}, set()),
        ({"readOnlyHint": True}, set()),
        ({}, set()),
    ],
)
def test_only_a_hint_that_is_explicitly_true_adds_something(
    hints: dict[str, Json], added: set[str]
) -> None:
    assert capabilities_of(None, NOTHING, (), hints, NOTHING) == added


@unhurried
@given(st.none() | declarations, capability_sets, role_sets, hint_sets, capability_sets)
def test_a_servers_own_hints_never_take_anything_away(
    declared: ToolDeclaration | None,
    by_arguments: frozenset[str],
    roles: frozenset[ArgumentRole],
    hints: dict[str, Json] | None,
    command: frozenset[str],
) -> None:
    without = capabilities_of(declared, by_arguments, roles, None, command)
    assert without <= capabilities_of(declared, by_arguments, roles, hints, command)


VERDICTS: tuple[tuple[str, str, Profile, ProfileAnswer], ...] = (
    ("nothing needed", "", SUPERVISED, ProfileAnswer(level="allow")),
    ("all allowed", "fs.read", SUPERVISED, ProfileAnswer(level="allow")),
    (
        "one to be asked about among allowed ones",
        "fs.read fs.write",
        SUPERVISED,
        ProfileAnswer(level="approve", capabilities=("fs.write",)),
    ),
    (
        "deny beats approve and allow, and only what is denied is named",
        "fs.read fs.delete net.egress",
        AUTONOMOUS,
        ProfileAnswer(level="deny", capabilities=("net.egress",)),
    ),
    (
        "a blocked tool is denied though all it needs is allowed",
        "fs.read",
        replace(SUPERVISED, blocked_tools=frozenset({"s/tool"})),
        ProfileAnswer(level="deny"),
    ),
    (
        "a blocked tool is denied though it was also pre-approved",
        "fs.read",
        replace(SUPERVISED, blocked_tools=TOOL, pre_approved_tools=TOOL),
        ProfileAnswer(level="deny"),
    ),
    (
        "a pre-approved tool is not asked about",
        "fs.write net.egress",
        replace(SUPERVISED, pre_approved_tools=frozenset({"tool"})),
        ProfileAnswer(level="allow"),
    ),
    (
        "deny beats a per-tool allow",
        "fs.write net.egress",
        replace(AUTONOMOUS, pre_approved_tools=frozenset({"tool"})),
        ProfileAnswer(level="deny", capabilities=("net.egress",)),
    ),
    (
        "another tool's name is not this tool's",
        "fs.write",
        replace(
            SUPERVISED,
            blocked_tools=frozenset({"t/tool"}),
            pre_approved_tools=frozenset({"t/tool"}),
        ),
        ProfileAnswer(level="approve", capabilities=("fs.write",)),
    ),
)


@pytest.mark.requirement("D-11", "D-34")
@pytest.mark.parametrize(
    ("needed", "profile", "expected"), [pytest.param(*row[1:], id=row[0]) for row in VERDICTS]
)
def test_of_several_answers_the_strictest_holds(
    needed: str, profile: Profile, expected: ProfileAnswer
) -> None:
    assert verdict(TOOL, frozenset(needed.split()), profile) == expected


@pytest.mark.requirement("D-14")
def test_a_new_dimension_is_a_rule_and_no_declaration_changes() -> None:
    declared = ToolDeclaration(tool_id="s/tool", capabilities=("fs.write.attachments",))
    needed = capabilities_of(declared, NOTHING, (), None, NOTHING)
    before = Profile(name="p", rules={"fs.write": "allow"})
    after = replace(before, rules={**before.rules, "fs.write.attachments": "approve"})
    assert verdict(TOOL, needed, before).level == "allow"
    assert verdict(TOOL, needed, after).level == "approve"


@unhurried
@given(capability_sets, capability_sets, profiles)
def test_needing_more_is_never_judged_more_mildly(
    some: frozenset[str], more: frozenset[str], profile: Profile
) -> None:
    strictness = ("allow", "approve", "deny").index
    fewer = verdict(TOOL, some, profile).level
    assert strictness(verdict(TOOL, some | more, profile).level) >= strictness(fewer)


@pytest.mark.requirement("D-5", "D-36")
@pytest.mark.parametrize(
    ("profile", "isolation", "name", "says"),
    [
        (AUTONOMOUS, "isolated", "autonomous", None),
        (
            AUTONOMOUS,
            "unisolated",
            "supervised",
            (
                "The profile autonomous needs isolation, and this session is not isolated: "
                "supervised holds instead"
            ),
        ),
        (
            AUTONOMOUS,
            "unknown",
            "supervised",
            (
                "The profile autonomous needs isolation, and this session is not known to be "
                "isolated: supervised holds instead"
            ),
        ),
        (SUPERVISED, "isolated", "supervised", None),
        (SUPERVISED, "unisolated", "supervised", None),
        (OWN, "unknown", "own", None),
    ],
)
def test_autonomous_without_real_isolation_behaves_as_supervised_and_says_so(
    profile: Profile, isolation: Isolation, name: str, says: str | None
) -> None:
    holds, sentence = effective_profile(profile, isolation)
    assert (holds.name, sentence) == (name, says)
    assert holds == {"autonomous": AUTONOMOUS, "supervised": SUPERVISED, "own": OWN}[name]


def test_what_an_operator_denies_stays_denied_without_isolation() -> None:
    mine = replace(
        AUTONOMOUS,
        name="mine",
        rules={**AUTONOMOUS.rules, "secrets.access": "deny", "fs.delete": "allow"},
        default="deny",
        blocked_tools=frozenset({"s/tool"}),
        pre_approved_tools=frozenset({"s/tool"}),
    )
    holds, _ = effective_profile(mine, "unknown")
    assert holds.rules == {
        **SUPERVISED.rules,
        "secrets.access": "deny",
        # Its author's own word, though `autonomous` says the same.
        "net.egress": "deny",
    }
    assert holds.default == "deny"
    assert holds.blocked_tools == {"s/tool"}
    assert holds.pre_approved_tools == NOTHING


ISOLATION: tuple[tuple[Isolation | None, Isolation | None, bool | None, Isolation], ...] = (
    # flag       manifest      confined  found
    (None, None, True, "isolated"),
    (None, None, False, "unknown"),
    (None, None, None, "unknown"),
    (None, "isolated", False, "isolated"),
    (None, "unisolated", True, "unisolated"),
    (None, "unknown", True, "unknown"),
    ("isolated", "unisolated", False, "isolated"),
    ("unisolated", "isolated", True, "unisolated"),
    ("unknown", "isolated", True, "unknown"),
)


@pytest.mark.requirement("D-44")
@pytest.mark.parametrize(("flag", "manifest", "confined", "found"), ISOLATION)
def test_the_command_line_speaks_before_the_manifest_and_the_manifest_before_the_run(
    flag: Isolation | None, manifest: Isolation | None, confined: bool | None, found: Isolation
) -> None:
    assert detect_isolation(flag, manifest, every_server_confined=confined) == found


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        ("fs.write", "create or change files (fs.write)"),
        ("fs.write.outside_base", "create or change files (fs.write.outside_base)"),
        ("fs.write:/srv/**", "something unknown (fs.write:/srv/**)"),
        ("attachments.send", "something unknown (attachments.send)"),
    ],
)
def test_people_see_the_words_and_the_name(capability: str, words: str) -> None:
    assert described(capability) == words
