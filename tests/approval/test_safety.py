"""How dangerous a call is (R-26)."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import InterceptorConfig, Subject, safety_level_of
from ironcurtain_proxy.model.annotation import ArgumentRole, SafetyLevel, ToolDeclaration
from ironcurtain_proxy.model.decision import PriorConsent
from ironcurtain_proxy.model.values import Json
from tests.approval.subjects import PATHS, a_subject, interceptors, subjects, unhurried
from tests.tables import table

SAFE, MODERATE, DANGEROUS = SafetyLevel
PLAIN = InterceptorConfig()
READ_ONLY: dict[str, Json] = {"readOnlyHint": True}

ROLES: tuple[tuple[str, SafetyLevel, SafetyLevel], ...] = table(
    "approval/safety.roles", tuple[tuple[str, SafetyLevel, SafetyLevel], ...]
)


def roles_of(text: str) -> list[ArgumentRole]:
    known: dict[str, ArgumentRole] = {role: role for role in _ALL}
    return [known[word] for word in text.split()]


_ALL: tuple[ArgumentRole, ...] = (
    *("none", "read-path", "branch-name", "commit-message", "write-path", "fetch-url"),
    *("git-remote-url", "github-owner", "github-repo", "proxy-domain", "email-address"),
    *("email-body", "share-permission", "delete-path", "write-history", "delete-history"),
)


@pytest.mark.requirement("E-17")
@pytest.mark.parametrize(("roles", "plain", "read_only"), ROLES)
def test_the_roles_of_the_arguments_say_how_dangerous_a_call_is(
    roles: str, plain: SafetyLevel, read_only: SafetyLevel
) -> None:
    call = a_subject(*roles_of(roles))
    assert safety_level_of(call, PLAIN) == plain
    assert safety_level_of(replace(call, hints=READ_ONLY), PLAIN) == read_only


@pytest.mark.parametrize("level", SafetyLevel)
@pytest.mark.parametrize("annotated", [True, False])
def test_the_operators_word_holds_as_written(level: SafetyLevel, annotated: bool) -> None:
    declared = ToolDeclaration(tool_id="s/tool", safety_level=level, command_argument="c")
    call = a_subject("delete-path", annotated=annotated, declared=declared)
    assert safety_level_of(call, PLAIN) == level
    contained = replace(call, standing=PriorConsent(contained=PATHS, names_tool=True))
    assert safety_level_of(contained, PLAIN) == level


@pytest.mark.requirement("E-11")
def test_a_tool_that_nobody_annotated_is_dangerous_whatever_it_says_of_itself() -> None:
    call = a_subject(annotated=False, hints=READ_ONLY, standing=PriorConsent(names_tool=True))
    assert safety_level_of(call, PLAIN) == DANGEROUS


def test_a_push_is_dangerous_and_a_fetch_is_not() -> None:
    call = a_subject("read-path", "git-remote-url")
    assert safety_level_of(call, PLAIN) == MODERATE
    assert safety_level_of(replace(call, pushes=True), PLAIN) == DANGEROUS


@pytest.mark.parametrize(
    "call",
    [
        replace(a_subject("read-path"), command=frozenset({"fs.read"})),
        replace(a_subject("read-path"), by_arguments=frozenset({"proc.exec"})),
        a_subject(declared=ToolDeclaration(tool_id="s/tool", command_argument="command")),
        a_subject(declared=ToolDeclaration(tool_id="s/tool", capabilities=("proc.exec.unlisted",))),
    ],
    ids=["parsed", "by arguments", "declared argument", "declared capability"],
)
def test_a_command_is_dangerous(call: Subject) -> None:
    assert safety_level_of(replace(call, hints=READ_ONLY), PLAIN) == DANGEROUS


@pytest.mark.parametrize(
    "hints",
    [
        None,
        {},
        {"readOnlyHint": False},
        {"readOnlyHint": "true"},
        {"readOnlyHint": True, "destructiveHint": True},
        {"readOnlyHint": True, "openWorldHint": True},
    ],
)
def test_a_reader_that_is_not_clearly_hinted_as_one_is_moderate(
    hints: dict[str, Json] | None,
) -> None:
    assert safety_level_of(a_subject("read-path", hints=hints), PLAIN) == MODERATE


def test_a_hint_makes_nothing_safe_of_which_the_operator_says_more() -> None:
    for capability in ("fs.write", "data.user", "attachments.send"):
        declared = ToolDeclaration(tool_id="s/tool", capabilities=(capability,))
        call = a_subject("read-path", declared=declared, hints=READ_ONLY)
        assert safety_level_of(call, PLAIN) == MODERATE


CAPS: tuple[tuple[str, Subject, SafetyLevel, SafetyLevel, SafetyLevel], ...] = (
    # the call; its level; with approval_contained; with approval_allowed
    (
        "a deletion in the workspace",
        a_subject("delete-path", standing=PriorConsent(contained=PATHS)),
        *(MODERATE, DANGEROUS, MODERATE),
    ),
    (
        "a move out of the workspace",
        a_subject(
            *("delete-path", "write-path"),
            standing=PriorConsent(contained=frozenset({"delete-path"})),
        ),
        *(DANGEROUS, DANGEROUS, DANGEROUS),
    ),
    (
        "a deletion that a rule allows for the role",
        a_subject("delete-path", standing=PriorConsent(names_roles=frozenset({"delete-path"}))),
        *(MODERATE, MODERATE, DANGEROUS),
    ),
    (
        "a deletion that a rule allows for another role",
        a_subject(
            *("delete-path", "write-path"),
            standing=PriorConsent(names_roles=frozenset({"write-path"})),
        ),
        *(DANGEROUS, DANGEROUS, DANGEROUS),
    ),
    (
        "a deletion that a rule allows for the tool",
        a_subject("delete-path", standing=PriorConsent(names_tool=True)),
        *(MODERATE, MODERATE, DANGEROUS),
    ),
    (
        "a push from the workspace that no rule names",
        a_subject(
            *("read-path", "git-remote-url"),
            pushes=True,
            standing=PriorConsent(contained=frozenset({"read-path"})),
        ),
        *(DANGEROUS, DANGEROUS, DANGEROUS),
    ),
    (
        "a push from the workspace to a remote that a rule names",
        a_subject(
            *("write-history", "git-remote-url"),
            pushes=True,
            standing=PriorConsent(
                contained=frozenset({"write-history"}), names_roles=frozenset({"git-remote-url"})
            ),
        ),
        *(MODERATE, DANGEROUS, DANGEROUS),
    ),
    (
        "a command in the workspace",
        replace(
            a_subject("read-path", standing=PriorConsent(contained=PATHS, names_roles=PATHS)),
            command=frozenset({"proc.exec"}),
        ),
        *(DANGEROUS, DANGEROUS, DANGEROUS),
    ),
    (
        "a command of a tool that a rule names",
        replace(
            a_subject(standing=PriorConsent(names_tool=True)), command=frozenset({"proc.exec"})
        ),
        *(MODERATE, MODERATE, DANGEROUS),
    ),
)


@pytest.mark.parametrize(
    ("call", "plain", "contained", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in CAPS]
)
def test_what_a_person_settled_beforehand_is_at_most_moderate(
    call: Subject, plain: SafetyLevel, contained: SafetyLevel, allowed: SafetyLevel
) -> None:
    assert safety_level_of(call, PLAIN) == plain
    assert safety_level_of(call, InterceptorConfig(approval_contained=True)) == contained
    assert safety_level_of(call, InterceptorConfig(approval_allowed=True)) == allowed


@unhurried
@given(subjects, interceptors)
def test_what_was_settled_beforehand_makes_nothing_safe(
    call: Subject, config: InterceptorConfig
) -> None:
    bare = safety_level_of(replace(call, standing=PriorConsent()), config)
    assert safety_level_of(call, config) >= min(bare, MODERATE)


@unhurried
@given(subjects)
def test_the_switches_only_raise(call: Subject) -> None:
    strict = InterceptorConfig(approval_contained=True, approval_allowed=True)
    unsettled = replace(call, standing=PriorConsent())
    assert safety_level_of(call, strict) == safety_level_of(unsettled, PLAIN)
    assert safety_level_of(call, strict) >= safety_level_of(call, PLAIN)
