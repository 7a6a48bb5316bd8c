"""Where a path really leads."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.facts.arguments import Refusal, Speller
from ironcurtain_proxy.facts.paths import (
    _MAX_LINKS,
    NO_NUMBER,
    PROCFS,
    PathReader,
    PathReading,
    file_system_type,
)
from ironcurtain_proxy.model.values import RealPath
from tests.facts.conftest import Tree
from tests.facts.unprivileged import without_privileges
from tests.tables import named, table


def judged(tree: Tree, text: str) -> str:
    reading = tree.reader().read(text)
    assert isinstance(reading, PathReading), reading
    assert reading.value.text == str(reading.value.path)
    return reading.value.text.removeprefix(str(tree.root))


def spelled(tree: Tree, text: str) -> str:
    reading = tree.reader().read(text)
    assert isinstance(reading, PathReading), reading
    return reading.spelled.removeprefix(str(tree.root))


@pytest.mark.parametrize(
    ("text", "leads_to"),
    named("facts/paths.links_are_followed", tuple[str, str]),
)
def test_links_are_followed(tree: Tree, text: str, leads_to: str) -> None:
    assert judged(tree, text) == leads_to


@pytest.mark.parametrize(
    ("text", "leads_to"),
    [
        pytest.param("dangling", "/out/new.txt", id="to a file that is not there"),
        pytest.param("dangling/", "/out/new.txt", id="with a trailing slash"),
        pytest.param("dangling_chain", "/out/new.txt", id="over another link"),
        pytest.param("dangling_deep/x", "/out/no/such/dir/x", id="to a missing directory"),
    ],
)
def test_a_dangling_link_is_judged_by_its_target(tree: Tree, text: str, leads_to: str) -> None:
    assert judged(tree, text) == leads_to


def test_a_link_is_followed_however_much_is_missing_behind_it(tree: Tree) -> None:
    tail = "/".join(f"k{index}" for index in range(300))
    assert judged(tree, f"out/{tail}") == f"/out/data/{tail}"


def test_a_name_that_no_file_can_have_is_kept(tree: Tree) -> None:
    name = "x" * 5000
    assert judged(tree, f"out/{name}/y") == f"/out/data/{name}/y"


def test_a_path_that_only_shorter_steps_could_reach_is_refused(tree: Tree) -> None:
    assert isinstance(tree.reader().read("sub/" + "d" * 200 + "/../" + "d/" * 2500), Refusal)


@pytest.mark.parametrize(
    "text",
    table("facts/urls.other_processes", list[str]),
)
def test_what_means_another_thing_in_another_process_is_refused(tree: Tree, text: str) -> None:
    assert isinstance(tree.reader().read(text), Refusal)


@pytest.mark.parametrize("name", ["self", "1", "fd", "tty"])
def test_such_a_name_elsewhere_is_a_name_like_others(tree: Tree, name: str) -> None:
    assert judged(tree, f"out/{name}/x") == f"/out/data/{name}/x"


def test_a_spelling_that_is_refused_is_refused(tree: Tree) -> None:
    assert isinstance(tree.reader().read("a\0b"), Refusal)


def test_the_kind_of_a_file_system_is_unknown_where_it_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert file_system_type("/proc") == PROCFS
    assert file_system_type("/no/such/directory") is None
    assert file_system_type("\ud800") is None
    monkeypatch.setattr("ironcurtain_proxy.facts.paths._LIBRARY", None)
    assert file_system_type("/proc") == NO_NUMBER


def test_links_are_followed_without_a_procfs(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.readlink

    def unmounted(place: str) -> str:
        if place.startswith("/proc/"):
            raise FileNotFoundError(place)
        return really(place)

    monkeypatch.setattr(os, "readlink", unmounted)
    assert judged(tree, "out") == "/out/data"
    assert judged(tree, "a.txt") == "/work/a.txt"


def test_a_plain_file_of_proc_is_a_file(tree: Tree) -> None:
    assert judged(tree, "/proc/cpuinfo") == "/proc/cpuinfo"


_SECOND_PROCFS = """
import subprocess, sys
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.facts.arguments import Refusal, Speller
place = sys.argv[1]
subprocess.run(["mount", "-t", "proc", "proc", place], check=True)
reader = PathReader(Speller(home="/", workspace=None, cwd=None))
for door in ("self/cwd/a.txt", "self/root/etc/passwd", "1/cwd", "self/fd/0", "thread-self/cwd/x"):
    print(door, isinstance(reader.read(f"{place}/{door}"), Refusal))
print("plain", reader.read(f"{place}/cpuinfo").value.text == f"{place}/cpuinfo")
"""


def test_a_door_of_procfs_is_refused_wherever_procfs_is_mounted(tmp_path: Path) -> None:
    """Each mount of procfs may have a device number of its own."""
    apart = ["unshare", "--mount", "--pid", "--fork"]
    if os.geteuid() != 0:
        apart += ["--user", "--map-root-user"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine gives no mount namespace")
    ended = subprocess.run(
        [*apart, sys.executable, "-c", _SECOND_PROCFS, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    answers = dict(line.rsplit(" ", 1) for line in ended.stdout.splitlines())
    assert set(answers.values()) == {"True"}, answers
    assert len(answers) == 6


def test_a_link_of_another_file_system_without_a_device_is_followed() -> None:
    """A memory file system has no device either, and its links are text."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        link = Path(directory, "link")
        link.symlink_to("/usr")
        reader = PathReader(Speller(home="/", workspace=None, cwd=None))
        reading = reader.read(f"{link}/x")
        assert isinstance(reading, PathReading)
        assert reading.value.text == "/usr/x"


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        pytest.param("in/./b.txt", "/work/in/b.txt", id="links stay as they were written"),
        pytest.param("/workspace/dangling/", "/work/dangling", id="the alias goes"),
        pytest.param("~/notes", "/home/notes", id="the tilde goes"),
    ],
)
def test_what_is_sent_is_the_spelling_that_was_judged(tree: Tree, text: str, sent: str) -> None:
    assert spelled(tree, text) == sent


def test_a_link_is_also_known_by_where_it_lies(tree: Tree) -> None:
    reading = tree.reader().read(tree.path("out/back"))
    assert isinstance(reading, PathReading)
    assert reading.value.text == tree.path("work/sub")
    assert reading.link is not None
    assert reading.link.text == tree.path("out/back")


def test_a_path_through_a_link_is_no_link_itself(tree: Tree) -> None:
    reading = tree.reader().read("in/b.txt")
    assert isinstance(reading, PathReading)
    assert reading.link is None


def test_a_link_whose_directory_changes_while_it_is_read_is_refused(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = tree.reader()
    refusal = reader.read("/proc/self/cwd")
    assert isinstance(refusal, Refusal)
    answers = iter([RealPath.from_text("/etc"), refusal])
    monkeypatch.setattr(PathReader, "real_path", lambda *_: next(answers))
    assert reader.read(str(tree.root / "work/out")) == refusal


@pytest.mark.parametrize("keep_unreadable", [False, True])
def test_a_disk_that_fails_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_unreadable: bool
) -> None:
    def fails(_: str) -> os.stat_result:
        raise OSError(errno.EIO, "input/output error")

    (tmp_path / "link").symlink_to("/etc")
    reader = reader_of(tmp_path, keep_unreadable=keep_unreadable)
    monkeypatch.setattr(os, "lstat", fails)
    assert isinstance(reader.read(str(tmp_path / "link")), Refusal)


def test_too_many_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "l0").mkdir()
    for index in range(1, 40):
        (tmp_path / f"l{index}").symlink_to(f"l{index - 1}/../l{index - 1}")
    assert isinstance(reader_of(tmp_path).read(str(tmp_path / "l39")), Refusal)


def reader_of(root: Path, *, keep_unreadable: bool = False) -> PathReader:
    speller = Speller(home=str(root), workspace=None, cwd=None)
    return PathReader(speller, keep_unreadable=keep_unreadable)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    target = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(target)).mkdir()
    (tmp_path / "link").symlink_to(os.fsdecode(b"\xff"))
    assert isinstance(reader_of(tmp_path).read(str(tmp_path / "link")), Refusal)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_directory_that_may_not_be_looked_into_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    assert isinstance(reader_of(tmp_path).read(str(locked / "x")), Refusal)
    kept = reader_of(tmp_path, keep_unreadable=True).read(str(locked / "x"))
    assert isinstance(kept, PathReading)


NAMES = (
    *("a.txt", "sub", "b.txt", "in", "out", "out_abs", "dangling", "dangling_deep", "chain"),
    *("chain2", "loop_a", "loop_self", "self", "root", "cwd", "deeper", "no", "secret.txt"),
    *("..", ".", "", "data", "back", "file:", "%2e%2e"),
)
WALKS = st.lists(st.sampled_from(NAMES), max_size=7).map("/".join)
STARTS = st.sampled_from(("", "{root}/work/", "{root}/out/", "~/", "/workspace/", "file://{root}/"))


@given(start=STARTS, walk=WALKS)
def test_the_spelling_that_is_sent_leads_where_was_judged(
    tree: Tree, start: str, walk: str
) -> None:
    """The operating system's own opinion, of what it can open."""
    reading = tree.reader().read(start.replace("{root}", str(tree.root)) + walk)
    if isinstance(reading, Refusal):
        return
    assert os.path.normpath(reading.spelled) == reading.spelled
    try:
        opened = Path(reading.spelled).resolve(strict=True)
    except (OSError, RuntimeError):
        # A cycle has no real path; of what is missing, the existing part must still agree.
        try:
            assert os.path.realpath(reading.spelled) == reading.value.text
        except AssertionError:
            assert "loop" in reading.spelled
        return
    assert str(opened) == reading.value.text


@given(st.text(max_size=40) | st.text(alphabet="/.a\ud800\udc80\xe9", max_size=9) | WALKS)
def test_no_string_makes_the_reader_raise(tree: Tree, text: str) -> None:
    tree.reader().read(text)
    tree.reader(workspace=False).read(text)
    tree.reader(workspace=False, cwd="/").read(text)


def test_the_quick_look_and_the_walk_agree(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = tree.reader()
    texts = [f"{one}/{other}" for one in NAMES for other in NAMES]
    quick = [reader.read(text) for text in texts]
    monkeypatch.setattr("ironcurtain_proxy.facts.paths._O_PATH", None)
    assert [reader.read(text) for text in texts] == quick


def test_a_name_as_long_as_a_file_may_have_is_not_taken_for_one_that_no_file_has(
    tree: Tree,
) -> None:
    """Such files may lie there, reached step by step: nothing is known of where they lead."""
    assert isinstance(tree.reader().read("/".join(["n" * 255] * 17)), Refusal)
    impossible = "/".join(["n" * 256] * 17)
    assert judged(tree, impossible) == f"/work/{impossible}"


@pytest.mark.parametrize("name", ["fd", "stdin", "stdout", "stderr", "tty"])
def test_a_device_of_the_process_itself_is_refused(tree: Tree, name: str) -> None:
    assert isinstance(tree.reader().read(f"/dev/{name}"), Refusal)


def test_a_pipe_is_looked_at_and_not_opened(tmp_path: Path) -> None:
    """To open it would wait for whoever writes."""
    os.mkfifo(tmp_path / "pipe")
    reading = reader_of(tmp_path).read(str(tmp_path / "pipe"))
    assert isinstance(reading, PathReading)


def test_a_link_on_a_file_system_of_an_unknown_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be a procfs."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        link = Path(directory, "link")
        link.symlink_to("/usr")
        monkeypatch.setattr("ironcurtain_proxy.facts.paths.file_system_type", lambda _: None)
        assert isinstance(reader_of(Path(directory)).read(str(link)), Refusal)


def test_behind_a_locked_directory_nothing_is_known_unless_it_is_asked_to_keep_it() -> None:
    def work(place: Path) -> None:
        locked = place / "locked"
        locked.mkdir(mode=0)
        assert isinstance(reader_of(place).read(str(locked / "x")), Refusal)
        kept = reader_of(place, keep_unreadable=True).read(str(locked / "x"))
        assert isinstance(kept, PathReading)

    assert without_privileges(work) == 0


def test_a_path_that_was_read_leaves_nothing_open(tree: Tree) -> None:
    reader = tree.reader()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for text in ("a.txt", "new.txt", "in/b.txt", "no/such"):
        reader.read(text)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_as_many_links_are_followed_as_the_limit_says_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "l0").mkdir()
    for index in range(1, _MAX_LINKS + 2):
        (tmp_path / f"l{index}").symlink_to(f"l{index - 1}")
    reading = reader_of(tmp_path).read(str(tmp_path / f"l{_MAX_LINKS}"))
    assert isinstance(reading, PathReading)
    assert reading.value.text == str(tmp_path / "l0")
    assert isinstance(reader_of(tmp_path).read(str(tmp_path / f"l{_MAX_LINKS + 1}")), Refusal)
