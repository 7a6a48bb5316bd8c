"""What a declaration can say, and what it cannot."""

import pytest
from msgspec.structs import fields

from ironcurtain_proxy.model.annotation import CAPABILITIES, SafetyLevel, ToolDeclaration


@pytest.mark.requirement("D-33")
def test_a_declaration_is_written_as_the_design_writes_it() -> None:
    declaration = ToolDeclaration(tool_id="fs.write_text", capabilities=("fs.write",))
    assert declaration.tool_id == "fs.write_text"
    assert declaration.capabilities == ("fs.write",)
    assert declaration.safety_level is None
    assert declaration.command_argument is None


@pytest.mark.requirement("D-12")
def test_a_declaration_has_no_word_about_approval() -> None:
    names = {field.name for field in fields(ToolDeclaration)}
    assert names == {"tool_id", "capabilities", "safety_level", "command_argument"}


def test_the_seven_capabilities_each_have_words_for_people() -> None:
    assert list(CAPABILITIES) == [
        "fs.read",
        "fs.write",
        "fs.delete",
        "net.egress",
        "proc.exec",
        "data.user",
        "secrets.access",
    ]
    assert all(words and words[0].islower() for words in CAPABILITIES.values())


@pytest.mark.requirement("E-17")
def test_safety_levels_are_numbered_from_safe_to_dangerous() -> None:
    assert [(level.name, level.value) for level in SafetyLevel] == [
        ("SAFE", 1),
        ("MODERATE", 2),
        ("DANGEROUS", 3),
    ]
