"""A configuration of each known client, as its documentation shows it, with one server of each kind
that the client has."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    client: str
    file: str
    """Below the home directory."""
    text: str
    taken: frozenset[str]
    left: dict[str, str] = field(default_factory=dict)
    """With a part of the reason."""


SAMPLES: Final = table("config/clients/samples.samples", tuple[Sample, ...])


def install(home: Path, workspace: Path, sample: Sample) -> Path:
    """Write a sample. Returns its file."""
    file = home / sample.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(sample.text.replace("@WORKSPACE@", str(workspace)), "utf-8")
    return file
