"""Nobody changes a log without `verify` noticing."""

from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.audit.files import MAX_LINE, head_path, rotated_paths
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from tests.audit.specimens import intent, write_log
from tests.examples import examples

LINES = 12


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of twelve lines in one file."""
    return write_log(tmp_path_factory.mktemp("log") / "audit.jsonl", LINES).path


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    """A copy of it, with its head file."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(written.read_bytes())
    head_path(path).write_bytes(head_path(written).read_bytes())
    return path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def problems(path: Path, expect: str | None = None) -> list[str]:
    return [f"{one.where}: {one.what}" for one in verify(path, expect).problems]


def test_a_log_that_nobody_touched_is_whole(written: Path) -> None:
    verdict = verify(written)
    assert verdict.problems == ()
    assert verdict.notes == ()
    assert (verdict.lines, verdict.last.seq) == (LINES, LINES)
    assert verdict.last.digest == sha256(lines(written)[-1][:-1]).hexdigest()


shared = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@shared
@given(place=st.integers(0, 10**9), byte=st.integers(1, 255))
def test_every_edit_of_a_single_byte_is_found(copy: Path, place: int, byte: int) -> None:
    """G20."""
    whole = copy.read_bytes()
    place %= len(whole)
    edited = bytearray(whole)
    edited[place] ^= byte
    copy.write_bytes(edited)
    found = problems(copy)
    copy.write_bytes(whole)
    assert found


def test_every_edit_that_breaks_or_joins_lines_is_found(copy: Path) -> None:
    whole = copy.read_bytes()
    for place, byte in enumerate(whole):
        if byte == ord("\n"):
            copy.write_bytes(whole[:place] + b" " + whole[place + 1 :])
            assert problems(copy)
    for place in range(0, len(whole), 97):
        copy.write_bytes(whole[:place] + b"\n" + whole[place:])
        assert problems(copy)


@shared
@given(place=st.integers(0, LINES - 1))
def test_every_removed_line_is_found(copy: Path, place: int) -> None:
    """G20."""
    whole = lines(copy)
    copy.write_bytes(b"".join(whole[:place] + whole[place + 1 :]))
    found = problems(copy)
    copy.write_bytes(b"".join(whole))
    assert found
    if place < LINES - 1:
        assert any(f"record {place + 1} is missing" in one for one in found)
        assert any(f"audit.jsonl line {place + 1}:" in one for one in found)


@shared
@given(st.permutations(range(LINES)))
def test_every_other_order_is_found(copy: Path, order: list[int]) -> None:
    """G20."""
    whole = lines(copy)
    copy.write_bytes(b"".join([whole[place] for place in order]))
    found = problems(copy)
    copy.write_bytes(b"".join(whole))
    assert bool(found) == (order != sorted(order))


@shared
@given(source=st.integers(0, LINES - 1), target=st.integers(0, LINES))
def test_every_repeated_line_is_found(copy: Path, source: int, target: int) -> None:
    whole = lines(copy)
    copy.write_bytes(b"".join([*whole[:target], whole[source], *whole[target:]]))
    found = problems(copy)
    copy.write_bytes(b"".join(whole))
    assert any("moved, repeated, inserted or edited" in one for one in found)


def test_an_edited_line_is_named(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes().replace(b"/srv/5.txt", b"/etc/5.txt", 1))
    (found,) = problems(copy)
    assert found.startswith("audit.jsonl line 6: does not follow from audit.jsonl line 5: ")


@pytest.mark.parametrize("kept", range(LINES))
def test_a_cut_tail_is_found_by_the_head_file(copy: Path, kept: int) -> None:
    copy.write_bytes(b"".join(lines(copy)[:kept]))
    (found,) = problems(copy)
    assert found.startswith(
        f"audit.jsonl: ends with record {kept}, but the head file knows {LINES}"
    )


def test_a_cut_tail_with_a_forged_head_is_found_by_an_anchor_kept_elsewhere(copy: Path) -> None:
    anchor = verify(copy).last.digest
    kept = lines(copy)[:-2]
    copy.write_bytes(b"".join(kept))
    digest = sha256(kept[-1][:-1]).hexdigest()
    head_path(copy).write_bytes(b'{"seq":%d,"digest":"%b"}' % (LINES - 2, digest.encode()))
    assert problems(copy) == []
    assert problems(copy, anchor) == [
        f"audit.jsonl: has no line with digest {anchor}: cut off or changed"
    ]


def appended(path: Path, seq: int) -> bytes:
    """A record that continues the chain as the proxy would."""
    last = lines(path)[-1][:-1]
    fields = orjson.loads(last) | {"seq": seq, "prev": sha256(last).hexdigest()}
    return orjson.dumps(fields) + b"\n"


def test_a_record_that_is_appended_to_a_closed_log_is_found_for_ever(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes() + appended(copy, LINES + 1))
    said = f"audit.jsonl: 1 line follows record {LINES}, with which the log was closed"
    assert [one.partition(":")[0] for one in problems(copy)] == ["audit.jsonl"]
    assert problems(copy)[0].startswith(said)
    write_log(copy, 1)
    assert problems(copy)


def test_a_record_that_is_appended_beside_a_running_proxy_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    log = AuditLog.open(path, LogSettings())
    try:
        assert problems(path) == []
        path.write_bytes(path.read_bytes() + appended(path, 3))
        assert "somebody else added that" in problems(path)[0]
    finally:
        log.close()
    assert problems(path)


def test_lines_that_a_killed_proxy_did_not_note_are_no_fault_and_told(copy: Path) -> None:
    """Whether somebody added them afterwards, the log itself cannot tell."""
    known = lines(copy)[LINES - 3][:-1]
    head = {"seq": LINES - 2, "digest": sha256(known).hexdigest()}
    head_path(copy).write_bytes(orjson.dumps(head))
    assert problems(copy) == []
    assert "the proxy was killed before it could note more" in verify(copy).notes[0]


def test_a_head_file_of_another_line_is_found(copy: Path) -> None:
    head_path(copy).write_bytes(b'{"seq":%d,"digest":"%b"}' % (LINES, b"ab" * 32))
    assert "it was edited" in problems(copy)[0]


def test_a_missing_head_file_is_said(copy: Path) -> None:
    head_path(copy).unlink()
    assert "whether lines were cut off is not known" in problems(copy)[0]


def test_lines_after_the_anchor_are_counted(copy: Path) -> None:
    anchor = sha256(lines(copy)[8][:-1]).hexdigest()
    verdict = verify(copy, anchor)
    assert verdict.problems == ()
    assert verdict.notes == ("3 lines follow the expected one",)


def test_an_anchor_is_found_after_a_rotation_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 4)
    anchor = verify(path).last.digest
    write_log(path, 30, LogSettings(max_bytes=2000), first=5)
    files = [*rotated_paths(path), path]
    assert len(files) > 4
    assert problems(path, anchor) == []
    after = verify(path).last.digest
    for file in files[2:]:
        file.unlink()
    assert len(problems(path, anchor)) == 1
    assert len(problems(path, after)) == 2


def test_a_rotated_file_that_is_missing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 30, LogSettings(max_bytes=2000))
    for file in rotated_paths(path):
        whole = file.read_bytes()
        file.unlink()
        assert "missing before it" in problems(path)[0]
        file.write_bytes(whole)
    assert problems(path) == []


def test_a_torn_last_line_is_a_problem_unless_it_is_just_being_written(copy: Path) -> None:
    with copy.open("ab") as file:
        file.write(b'{"timest')
    assert problems(copy) == [
        f"audit.jsonl line {LINES + 1}: is cut off before its end; the next start sets it aside"
    ]


def test_a_log_in_use_can_be_verified(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 4)
    log = AuditLog.open(path)
    with path.open("ab") as file:
        file.write(b'{"timest')
    verdict = verify(path)
    assert verdict.problems == ()
    assert verdict.notes == ("the last line is just being written",)
    log.close()


def test_intents_without_outcome_are_listed(tmp_path: Path) -> None:
    """R-32."""
    path = tmp_path / "audit.jsonl"
    write_log(path, 5)
    verdict = verify(path)
    assert verdict.problems == ()
    assert verdict.unfinished == (intent(5).request_id,)
    write_log(path, 1, first=6)
    assert verify(path).unfinished == ()


def test_a_file_of_another_kind_is_refused_line_by_line_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"not a record\n" * 1000 + b"x" * (3 * MAX_LINE) + b"\n" + b"y" * 10)
    verdict = verify(path)
    assert len(verdict.problems) == 100
    assert verdict.more_problems == 902


@pytest.mark.parametrize("place", range(1, LINES + 1))
def test_a_line_without_a_chain_in_a_log_that_has_one_is_found(copy: Path, place: int) -> None:
    """Only before the first chained line is a line without one a line of an older version."""
    whole = lines(copy)
    fields = orjson.loads(whole[place - 1])
    del fields["seq"], fields["prev"]
    copy.write_bytes(b"".join([*whole[:place], orjson.dumps(fields) + b"\n", *whole[place:]]))
    found = problems(copy)
    assert found[0].startswith(f"audit.jsonl line {place + 1}: is numbered 0 ")
