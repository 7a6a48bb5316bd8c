"""What a confined process can write to."""

import pytest

from ironcurtain_proxy.model.reply import PathNotHeld
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath
from tests.tables import table


def path(text: str) -> RealPath:
    return RealPath.from_text(text)


@pytest.mark.parametrize(
    ("text", "can"),
    table("model/walls.the_inmost_mount_says_whether_a_path", list[tuple[str, bool]]),
)
def test_the_inmost_mount_says_whether_a_path_can_be_written_to(text: str, *, can: bool) -> None:
    restrictions = SandboxRestrictions(
        writable=(path("/ws"), path("/ws/data/open")),
        closed=(path("/"), path("/ws/data")),
        temporary=None,
        is_offline=True,
    )
    assert restrictions.can_write(path(text)) is can


def test_what_nobody_knows_can_be_written_to() -> None:
    assert SandboxRestrictions(writable=(), temporary=None, is_offline=True).can_write(path("/ws"))


def test_a_name_that_is_no_text_is_said_in_text() -> None:
    said = str(PathNotHeld(RealPath(("ws", "a\udcff")), "it is too large"))
    assert said == "/ws/a\\udcff (it is too large)"
