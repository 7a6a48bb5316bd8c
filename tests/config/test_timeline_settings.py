"""The bounds of the timeline, as the section `containment` says them."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.values import Json
from tests.tables import table


def read(tmp_path: Path, section: Json) -> Settings:
    file = tmp_path / "config.json"
    file.write_bytes(orjson.dumps({"containment": section}))
    return Settings.from_environment({"HOME": str(tmp_path)}, file)


def test_nothing_said_is_two_gibibytes_and_known_caches(tmp_path: Path) -> None:
    found = Settings.from_environment({"HOME": str(tmp_path)}).timeline
    assert (found.max_bytes, found.max_files, found.keep_days) == (2 << 30, 200_000, 14)
    assert {"node_modules", "target", ".venv", "__pycache__"} <= found.caches


def test_what_is_said_counts(tmp_path: Path) -> None:
    found = read(
        tmp_path, {"max_bytes": 1 << 20, "max_files": 10, "keep_days": 1, "caches": ["build"]}
    ).timeline
    assert (found.max_bytes, found.max_files, found.keep_days) == (1 << 20, 10, 1)
    assert found.caches == {"build"}


@pytest.mark.parametrize(
    "section",
    table("config/timeline_settings.what_cannot_be_a_bound_is_refused", list[dict[str, Json]]),
)
def test_what_cannot_be_a_bound_is_refused(tmp_path: Path, section: Json) -> None:
    with pytest.raises(ProblemsError, match="containment"):
        read(tmp_path, section)
