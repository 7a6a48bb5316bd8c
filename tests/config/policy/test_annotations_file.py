"""Annotations that are read, and annotations that are refused."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.annotation import Equals, Is, OneOf
from ironcurtain_proxy.model.values import Json
from tests.config.files import TOOL, annotations, replaced, said, write


def problems(path: Path, document: Json) -> list[str]:
    report = Report()
    read_annotations_file(write(path / "tool-annotations.json", document), report)
    return said(report)


def test_an_annotation_is_read_with_its_cases(tmp_path: Path) -> None:
    file = read_annotations_file(write(tmp_path / "a.json", annotations(TOOL)), Report())
    assert file is not None
    found = file.annotations["filesystem", "edit_file"]
    assert found.comment == "Edits."
    assert found.input_schema == {"type": "object"}
    assert list(found.arguments) == ["path", "dryRun"]
    assert found.arguments["path"].roles({"dryRun": True}) == ("read-path",)
    assert found.arguments["path"].roles({}) == ("read-path", "write-path")


def test_members_of_an_object_have_roles_of_their_own(tmp_path: Path) -> None:
    inside: Json = {"path": ["write-path"], "more": {"default": [], "inside": {"sql": ["sql"]}}}
    document = replaced(TOOL, ("args", "dryRun"), {"default": ["none"], "inside": inside})
    file = read_annotations_file(write(tmp_path / "a.json", annotations(document)), Report())
    assert file is not None
    spec = file.annotations["filesystem", "edit_file"].arguments["dryRun"]
    assert spec.inside["path"].default == ("write-path",)
    assert spec.inside["more"].inside["sql"].default == ("sql",)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"arg": "dryRun", "equals": None}, Equals(argument="dryRun", value=None)),
        ({"arg": "dryRun", "in": [1, "a"]}, OneOf(argument="dryRun", values=(1, "a"))),
        ({"arg": "dryRun", "is": "absent"}, Is(argument="dryRun", presence="absent")),
    ],
)
def test_every_kind_of_condition_is_read(condition: Json, expected: object, tmp_path: Path) -> None:
    document = replaced(TOOL, ("args", "path", "when", 0, "condition"), condition)
    file = read_annotations_file(write(tmp_path / "a.json", annotations(document)), Report())
    assert file is not None
    spec = file.annotations["filesystem", "edit_file"].arguments["path"]
    assert spec.cases[0].condition == expected


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        (("tool",), "x", "unknown key [toolName]"),
        (("toolName",), "", "must not be empty"),
        (("args", "dryRun", 0), "non", '"non" is not one of '),
        (("args", "dryRun"), {"default": [], "inside": ["x"]}, "must be an object"),
        (("args", "dryRun"), "none", "must be a list or an object, not text"),
        (("args", "dryRun"), None, "must be a list or an object, not null"),
        (
            ("args", "path", "when", 0, "condition"),
            {"arg": "dryRun", "is": None},
            "must be one of absent",
        ),
        (("args", "path", "otherwise"), [], "unknown key"),
        (("args", "path", "default"), None, "must be a list, not null"),
        (("inputSchema",), [], "must be an object, not a list"),
        (
            ("args", "path", "when", 0, "condition", "arg"),
            "dryrun",
            '"dryrun" is not an argument of this tool [dryRun]',
        ),
        (
            ("args", "path", "when", 0, "condition", "equals"),
            [1],
            "must be text, a number, true, false or null: nothing else is compared",
        ),
        (
            ("args", "path", "when", 0, "condition", "is"),
            "present",
            "must have exactly one of equals, in, is",
        ),
        (("args", "path", "when", 0, "condition"), {"arg": "dryRun"}, "must have exactly one of"),
    ],
    ids=str,
)
def test_an_annotation_with_a_slip_is_refused_with_its_place(
    where: tuple[str | int, ...], value: Json, problem: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, annotations(replaced(TOOL, where, value)))
    assert len(found) == 1
    place, _, message = found[0].partition(": ")
    assert place.startswith("$.servers.filesystem.tools[0]")
    assert message.startswith(problem)


def test_a_tool_annotated_twice_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, annotations(TOOL, TOOL)) == [
        '$.servers.filesystem.tools[1].toolName: "edit_file" is annotated twice'
    ]


def test_the_server_a_tool_stands_under_is_the_one_that_counts(tmp_path: Path) -> None:
    report = Report()
    path = write(tmp_path / "a.json", annotations(TOOL, server="files"))
    file = read_annotations_file(path, report)
    assert file is not None
    assert list(file.annotations) == [("files", "edit_file")]
    assert len(report.problems) == 1
    assert not report.has_errors


def test_an_argument_may_be_called_anything(tmp_path: Path) -> None:
    tool: dict[str, Json] = {**TOOL, "args": {"_meta": ["none"], "constructor": ["none"]}}
    file = read_annotations_file(write(tmp_path / "a.json", annotations(tool)), Report())
    assert file is not None
    assert list(file.annotations["filesystem", "edit_file"].arguments) == ["_meta", "constructor"]


@pytest.mark.parametrize(("effect", "is_read"), [("runs", True), ("harms", False), (1, False)])
def test_what_a_tool_does_is_one_of_five_words(effect: Json, is_read: bool, tmp_path: Path) -> None:
    tool: Json = {"toolName": "t", "args": {}, "effect": effect}
    report = Report()
    read = read_annotations_file(
        write(tmp_path / "a.json", {"servers": {"s": {"tools": [tool]}}}), report
    )
    assert read is not None
    assert (report.problems == ()) is is_read
    if is_read:
        assert read.annotations["s", "t"].effect == effect
