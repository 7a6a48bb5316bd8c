"""Roles, and the conditions they hang on."""

import math
from typing import get_args

import pytest

from ironcurtain_proxy.model.annotation import (
    RESOURCE_ROLES,
    ROLE_TRAITS,
    ArgumentRole,
    Equals,
    Is,
    OneOf,
    Presence,
    RoleCase,
    RoleSpec,
    ToolAnnotation,
    ToolEffect,
    is_truthy,
    same_scalar,
)
from ironcurtain_proxy.model.values import Json


def test_every_role_has_traits() -> None:
    assert set(ROLE_TRAITS) == set(get_args(ArgumentRole))


def test_only_paths_are_settled_by_the_workspace() -> None:
    for role, traits in ROLE_TRAITS.items():
        assert traits.contained == (traits.category == "path")
        assert (role in RESOURCE_ROLES) == (traits.category != "opaque")


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        pytest.param(1, 1.0, True, id="1 and 1.0 are one number"),
        pytest.param(1, True, False, id="1 is not true"),
        pytest.param(0, False, False, id="0 is not false"),
        pytest.param(True, True, True, id="true is true"),
        pytest.param("1", 1, False, id="text is no number"),
        pytest.param("a", "a", True, id="equal texts"),
        pytest.param(None, None, True, id="null is null"),
        pytest.param(None, False, False, id="null is not false"),
        pytest.param([], [], False, id="arrays equal nothing"),
        pytest.param({}, {}, False, id="objects equal nothing"),
    ],
)
def test_scalars_are_compared_strictly(left: Json, right: Json, same: bool) -> None:
    assert same_scalar(left, right) is same
    assert same_scalar(right, left) is same


def test_truth_is_that_of_the_file_format() -> None:
    cases: list[tuple[Json, bool]] = [
        *(("", False), (0, False), (0.0, False), (False, False), (None, False), (math.nan, False)),
        *(("0", True), (1, True), (-1, True), (True, True), ([], True), ({}, True)),
    ]
    assert [(value, truthy) for value, truthy in cases if is_truthy(value) is not truthy] == []


@pytest.mark.parametrize(
    ("presence", "holds_for"),
    [
        ("present", [0, "", False, [], "x"]),
        ("absent", [None]),
        ("truthy", ["x", 1, True, [], {}]),
        ("falsy", [None, 0, "", False]),
    ],
)
def test_presence(presence: Presence, holds_for: list[Json]) -> None:
    condition = Is(argument="a", presence=presence)
    values: list[Json] = [None, 0, "", False, "x", 1, True, [], {}]
    for value in values:
        expected = any(value is v or (type(value) is type(v) and value == v) for v in holds_for)
        if presence == "present":
            expected = value is not None
        assert condition.holds({"a": value}) is expected
    assert condition.holds({}) is (presence in ("absent", "falsy"))


def test_a_missing_argument_equals_nothing() -> None:
    assert not Equals(argument="a", value=None).holds({})
    assert not OneOf(argument="a", values=(None, 1)).holds({})
    assert Equals(argument="a", value=None).holds({"a": None})
    assert OneOf(argument="a", values=(0, 1)).holds({"a": 1})
    assert not OneOf(argument="a", values=(0, 1)).holds({"a": True})


def test_the_first_case_that_holds_gives_the_roles() -> None:
    spec = RoleSpec(
        default=("read-path", "write-path"),
        cases=(
            RoleCase(condition=Equals(argument="mode", value="r"), roles=("read-path",)),
            RoleCase(condition=Is(argument="mode", presence="present"), roles=("write-path",)),
        ),
    )
    annotation = ToolAnnotation(server="s", tool="t", arguments={"path": spec})
    assert annotation.roles({"mode": "r"}) == (("path", ("read-path",)),)
    assert annotation.roles({"mode": "w"}) == (("path", ("write-path",)),)
    assert annotation.roles({}) == (("path", ("read-path", "write-path")),)


def test_a_specification_knows_the_roles_of_all_cases_and_members() -> None:
    inner = RoleSpec(default=("read-path",), inside={"deeper": RoleSpec(default=("sql",))})
    case = RoleCase(condition=Is(argument="a", presence="present"), roles=("fetch-url",))
    spec = RoleSpec(default=("none",), cases=(case,), inside={"file": inner})
    assert spec.every_role() == {"none", "fetch-url", "read-path", "sql"}


def tool(effect: ToolEffect | None = None, **roles: tuple[ArgumentRole, ...]) -> ToolAnnotation:
    specs = {name: RoleSpec(default=one) for name, one in roles.items()}
    return ToolAnnotation(server="files", tool="x", arguments=specs, effect=effect)


READS = tool(path=("read-path",), pattern=("none",))
EDITS = tool(path=("read-path", "write-path"))


@pytest.mark.parametrize(
    ("approved", "other", "like"),
    [
        pytest.param(READS, tool(path=("read-path",)), True, id="both read"),
        pytest.param(EDITS, tool(path=("write-path",)), True, id="both change"),
        pytest.param(tool(path=("write-path",)), EDITS, False, id="the other also shows"),
        pytest.param(EDITS, READS, False, id="reading is not changing"),
        pytest.param(READS, EDITS, False, id="changing is not reading"),
        pytest.param(
            EDITS, tool(a=("read-path", "delete-path"), b=("write-path",)), False, id="it deletes"
        ),
        pytest.param(READS, tool(path=("read-path",), to=("fetch-url",)), False, id="it fetches"),
        pytest.param(
            READS, tool(path=("read-path",), to=("email-address",)), False, id="it names a person"
        ),
        pytest.param(READS, tool(path=("read-path",), x=("unclear",)), False, id="not known"),
        pytest.param(READS, tool("sends", path=("read-path",)), False, id="it sends"),
        pytest.param(READS, tool("runs", path=("read-path",)), False, id="it runs"),
        pytest.param(READS, tool(text=("none",)), False, id="it names no place"),
        pytest.param(READS, None, False, id="it is not described"),
        pytest.param(
            tool(path=("delete-path",)), tool(path=("delete-path",)), False, id="both delete"
        ),
        pytest.param(
            READS,
            ToolAnnotation(
                server="files",
                tool="x",
                arguments={"path": RoleSpec(default=("read-path",))},
                method="prompts/get",
            ),
            False,
            id="a prompt",
        ),
    ],
)
def test_tools_are_alike_that_do_one_kind_of_thing_to_files_and_nothing_besides(
    approved: ToolAnnotation, other: ToolAnnotation | None, like: bool
) -> None:
    assert bool(approved.shared_with(other)) is like
