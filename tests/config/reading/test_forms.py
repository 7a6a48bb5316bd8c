"""Forms: the fast reading and the slow one agree, and the slow one names every mistake."""

from collections.abc import Iterator
from typing import Annotated, Literal

import pytest
from msgspec import UNSET, Meta

from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.reading.forms import (
    CheckedForm,
    Document,
    Form,
    FormMistake,
    Maybe,
    NameText,
    fill,
    fill_slowly,
    says,
)
from ironcurtain_proxy.model.values import Json
from tests.config.files import said


class Inner(CheckedForm, frozen=True, kw_only=True):
    """A form with a rule about its fields."""

    low: Annotated[int, Meta(ge=0, le=9)] = 0
    high: Annotated[float, Meta(gt=0, le=9)] = 9.0

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield a lower bound above the upper one."""
        if self.low > self.high:
            yield ("low",), "is above high", ""


class Outer(Document, frozen=True, kw_only=True):
    """A form with every type."""

    name: NameText
    word: Literal["yes", "no"] = "no"
    is_on: bool = False
    texts: tuple[NameText, ...] = ()
    by_name: dict[str, Inner] = {}  # noqa: RUF012  a struct copies it
    blank: Maybe[Annotated[str, says("[ab]+", "must be a or b")]] = UNSET
    either: Maybe[frozenset[str] | Inner] = UNSET


GOOD: list[Json] = [
    {"name": "a"},
    {"$schema": "s", "name": "a", "word": "yes", "isOn": True, "texts": ["b"]},
    {"name": "a", "byName": {"x": {"low": 1, "high": 2}, "_y": {}}, "either": ["q"]},
    {"name": "a", "_comment": "c", "either": {"low": 3, "_why": [1]}},
]
BAD: list[tuple[Json, list[str]]] = [
    ([], ["must be an object, not a list"]),
    ({}, ["$.name: is missing"]),
    ({"name": ""}, ["$.name: must not be empty"]),
    ({"name": "a\0"}, ["$.name: must not hold NUL"]),
    ({"name": "a", "blank": ""}, ["$.blank: must be a or b"]),
    ({"name": "a", "blank": "a\n"}, ["$.blank: must be a or b"]),
    ({"name": None}, ["$.name: must be text, not null"]),
    ({"name": "a", "either": None}, ["$.either: must be a list or an object, not null"]),
    ({"name": "a", "isOn": 1}, ["$.isOn: must be true or false, not a number"]),
    ({"name": "a", "byName": {"x": {"low": True}}}, ["must be a whole number, not true or false"]),
    ({"name": "a", "byName": {"x": {"low": 1.0}}}, ["must be a whole number, not a number"]),
    ({"name": "a", "byName": {"x": {"low": -1}}}, ["$.byName.x.low: must be from 0 to 9"]),
    ({"name": "a", "byName": {"x": {"high": 0}}}, ["must be greater than 0, and at most 9"]),
    ({"name": "a", "byName": {"x": {"low": 5, "high": 2}}}, ["$.byName.x.low: is above high"]),
    ({"name": "a", "either": {"lov": 1}}, ["$.either.lov: unknown key [low]"]),
    ({"name": "a", "$schema": 1}, ["must be text, not a number"]),
    (
        {"nam": "a", "texts": ["", 2], "word": "yess"},
        [
            "$.nam: unknown key [name]",
            "$.name: is missing",
            '$.word: "yess" is not one of no, yes [yes]',
            "$.texts[0]: must not be empty",
            "$.texts[1]: must be text, not a number",
        ],
    ),
]


@pytest.mark.parametrize("value", GOOD, ids=str)
def test_both_readings_of_a_document_without_mistakes_give_the_same_form(value: Json) -> None:
    report = Report()
    node = DocumentNode(value, "", report)
    assert fill(node, Outer) == fill_slowly(node, Outer)
    assert report.problems == ()


@pytest.mark.parametrize(("value", "mistakes"), BAD, ids=str)
def test_every_mistake_is_named_with_its_place(value: Json, mistakes: list[str]) -> None:
    report = Report()
    fill(DocumentNode(value, "", report), Outer)
    found = said(report)
    assert len(found) == len(mistakes)
    assert all(end in line for line, end in zip(found, mistakes, strict=True)), found


def test_an_unknown_key_of_another_program_is_a_warning() -> None:
    report = Report()
    form = fill(DocumentNode({"name": "a", "nome": 1}, "", report), Outer, foreign=True)
    assert form == Outer(name="a")
    assert [(one.severity, one.suggestion) for one in report.problems] == [("warning", "name")]


class Deep(Form, frozen=True, kw_only=True):
    """A form that holds itself."""

    inner: "Maybe[Deep]" = UNSET


def test_a_deep_document_is_refused_and_does_not_exhaust_the_stack() -> None:
    value: Json = "end"
    for _ in range(5000):
        value = {"inner": value}
    report = Report()
    fill(DocumentNode(value, "", report), Deep)
    assert [one.message for one in report.problems] == ["is nested too deeply"]


def test_a_form_shows_no_value() -> None:
    assert "s3cret" not in repr(Outer(name="s3cret"))
