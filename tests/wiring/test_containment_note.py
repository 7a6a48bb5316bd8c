"""The note that containment has ended in a session, until a person has looked."""

from pathlib import Path

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.wiring.containment import FILE_NAME, SessionContainment


def ended(top: Path, session: Path) -> SessionContainment:
    containment = SessionContainment(RealPath.from_text(str(top)), session)
    assert containment.ended(writes=True) is None
    containment.end(RequestId("3f2a"), "a hook was removed", "all")
    assert containment.ended(writes=True) == "a hook was removed"
    return containment


def test_a_person_resumes_by_taking_the_note_away(tmp_path: Path) -> None:
    containment = ended(tmp_path, tmp_path)
    (tmp_path / FILE_NAME).unlink()
    assert containment.ended(writes=True) is None


def test_a_session_that_cannot_keep_the_note_cannot_be_resumed(tmp_path: Path) -> None:
    session = tmp_path / "session"
    containment = ended(tmp_path, session)
    session.mkdir()
    (session / FILE_NAME).touch()
    (session / FILE_NAME).unlink()
    assert containment.ended(writes=True) == "a hook was removed"


def test_a_note_that_cannot_be_read_ends_containment(tmp_path: Path) -> None:
    containment = SessionContainment(RealPath.from_text(str(tmp_path)), tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b'{"call": "3f')
    assert containment.ended(writes=True) is not None


def test_what_ends_it_for_those_who_write_at_once_leaves_our_own_shell_and_is_outdone(
    tmp_path: Path,
) -> None:
    containment = SessionContainment(RealPath.from_text(str(tmp_path)), tmp_path)
    containment.end(RequestId("1"), "too often", "writers")
    assert containment.ended(writes=False) is None
    assert containment.ended(writes=True) == "too often"
    containment.end(RequestId("2"), "it stays", "all")
    containment.end(RequestId("3"), "too often", "writers")
    assert containment.ended(writes=False) == containment.ended(writes=True) == "it stays"


def test_a_note_of_an_earlier_version_is_about_all(tmp_path: Path) -> None:
    containment = SessionContainment(RealPath.from_text(str(tmp_path)), tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b'{"call": "3f2a", "why": "a hook"}')
    assert containment.ended(writes=False) == "a hook"
