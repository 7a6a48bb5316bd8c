"""The deciders of records: what is written is read back, and no name becomes another kind."""

from typing import get_args

import pytest

from ironcurtain_proxy.model.decision import (
    AUTO_APPROVER,
    CONTAINMENT,
    HUMAN,
    IN_CLIENT,
    KERNEL,
    TIMEOUT,
    Decider,
    DeciderWord,
    Engine,
    Grants,
    Program,
    Signers,
    in_record,
    of_record,
)

WRITTEN: dict[str, Decider] = {
    "human": HUMAN,
    "auto-approver": AUTO_APPROVER,
    "containment": CONTAINMENT,
    "client": IN_CLIENT,
    "kernel": KERNEL,
    "timeout": TIMEOUT,
    "engine:risk": Engine("risk"),
    "grant:a+b": Grants(("a", "b")),
    "signed:ada+bob": Signers(("ada", "bob")),
    "reviewer:night-shift": Program("night-shift", "named"),
}


@pytest.mark.parametrize(("text", "decider"), WRITTEN.items())
def test_a_decider_is_read_back_from_its_record(text: str, decider: Decider) -> None:
    assert in_record(decider) == text
    assert of_record(text) == decider


def test_every_word_of_records_belongs_to_one_kind() -> None:
    assert {text.partition(":")[0] for text in WRITTEN} == {*get_args(DeciderWord)}
    assert sorted(one.word for one in WRITTEN.values()) == sorted(get_args(DeciderWord))


@pytest.mark.parametrize(
    "name", ["kernel", "human", "engine:x", "grant:1+2", "auto-approver", "reviewer:a", "a:b", "+"]
)
def test_a_reviewer_s_name_never_becomes_another_kind(name: str) -> None:
    written = in_record(Program(name, "session"))
    assert of_record(written, "session") == Program(name, "session")
    # The kind of an old record is unknown, and is never taken for a person.
    found = of_record(written)
    assert found == Program(name, "named")
    assert found.is_automatic


@pytest.mark.parametrize(
    "text", ["", "Human", "human:", "human:x", "kernel:x", "engine", "engine:", "grant:", "new:1"]
)
def test_what_no_version_writes_is_no_decider(text: str) -> None:
    assert of_record(text) is None
