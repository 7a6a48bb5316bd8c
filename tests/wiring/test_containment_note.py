"""The note that containment has ended in a session, until a person has looked."""

from pathlib import Path

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.wiring.containment import FILE_NAME, SessionContainment


def ended(top: Path, session: Path) -> SessionContainment:
    containment = SessionContainment(RealPath.from_text(str(top)), session)
    assert containment.ended() is None
    containment.end(RequestId("3f2a"), "a hook was removed")
    assert containment.ended() == "a hook was removed"
    return containment


def test_a_person_resumes_by_taking_the_note_away(tmp_path: Path) -> None:
    containment = ended(tmp_path, tmp_path)
    (tmp_path / FILE_NAME).unlink()
    assert containment.ended() is None


def test_a_session_that_cannot_keep_the_note_cannot_be_resumed(tmp_path: Path) -> None:
    session = tmp_path / "session"
    containment = ended(tmp_path, session)
    session.mkdir()
    (session / FILE_NAME).touch()
    (session / FILE_NAME).unlink()
    assert containment.ended() == "a hook was removed"


def test_a_note_that_cannot_be_read_ends_containment(tmp_path: Path) -> None:
    containment = SessionContainment(RealPath.from_text(str(tmp_path)), tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b'{"call": "3f')
    assert containment.ended() is not None
