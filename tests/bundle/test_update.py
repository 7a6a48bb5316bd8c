"""What one machine takes over from a repository, and what it refuses."""

import io
import os
import resource
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace
from tuf.api.metadata import Metadata, Root, Targets, Timestamp

from ironcurtain_proxy.bundle import repository
from ironcurtain_proxy.bundle.contents import BundleError, unpack
from ironcurtain_proxy.config.policy.managed import (
    bundle_lines,
    last_attempt,
    read_current,
    read_release,
)
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import held_lock
from ironcurtain_proxy.signing import KeyFile
from tests.bundle.fleet import FIRST, Fleet, key, now
from tests.examples import THOROUGH

SECOND = {**FIRST, "policy.yaml": "ask time: '*'\n", "packs/time.json": '{"servers": {}}'}


def test_a_machine_takes_over_what_two_persons_signed(fleet: Fleet) -> None:
    first = fleet.update()
    assert (first.is_new, first.current.version, fleet.version()) == (True, 1, 1)
    assert not fleet.update().is_new
    fleet.publish(SECOND)
    assert fleet.update().is_new
    assert dict(read_release(fleet.bundle().directory)).keys() == SECOND.keys()
    # The former release stays for a proxy that is about to read it, and no third.
    fleet.publish({**SECOND, "maximum.yaml": "deny memory: '*'\n"})
    fleet.update()
    assert len([*(fleet.managed / "bundle/releases").iterdir()]) == 2


def test_an_older_bundle_comes_back_only_as_a_newer_version(fleet: Fleet) -> None:
    fleet.update()
    fleet.publish(SECOND)
    fleet.update()
    assert fleet.publish(FIRST) == 3
    assert fleet.update().current.version == 3


# --- attacks --------------------------------------------------------------------------------------


def _meta(fleet: Fleet, name: str) -> Path:
    return fleet.directory / "metadata" / name


def rollback(fleet: Fleet) -> None:
    """The host shows everything as it was before the second bundle."""
    old = fleet.place / "old"
    shutil.copytree(fleet.directory, old)
    fleet.publish(SECOND)
    fleet.update()
    shutil.rmtree(fleet.directory)
    old.rename(fleet.directory)


def rollback_with_a_new_time(fleet: Fleet) -> None:
    """The machine's key is stolen, and signs a new time for the old bundle."""
    fleet.publish(SECOND)
    fleet.update()
    _meta(fleet, "2.targets.json").unlink()
    fleet.sign_time()


def frozen(fleet: Fleet) -> None:
    """The host shows yesterday's state for ever."""
    fleet.publish(SECOND, signed=now() - timedelta(hours=30))


def mixed(fleet: Fleet) -> None:
    """A snapshot of one version with the targets of another."""
    fleet.publish(SECOND)
    shutil.copy(_meta(fleet, "1.targets.json"), _meta(fleet, "2.targets.json"))


def mixed_snapshot(fleet: Fleet) -> None:
    fleet.publish(SECOND)
    shutil.copy(_meta(fleet, "1.snapshot.json"), _meta(fleet, "2.snapshot.json"))


def tampered(fleet: Fleet) -> None:
    """The archive has another policy of the same length."""
    fleet.publish(SECOND)
    for path in (fleet.directory / "targets").iterdir():
        path.write_bytes(path.read_bytes().replace(b"ask time", b"all time"))


def one_signature(fleet: Fleet) -> None:
    """One person's key and the machine's key are stolen."""
    forged(fleet, fleet.ada)


def strange_signatures(fleet: Fleet) -> None:
    forged(fleet, key(), key(), fleet.ada)


def forged(fleet: Fleet, *keys: KeyFile, version: int = 3) -> None:
    fleet.publish(SECOND)
    path = _meta(fleet, "2.targets.json")
    found = Metadata[Targets].from_bytes(path.read_bytes())
    found.signed.version = version
    found.signatures.clear()
    for one in keys:
        found.sign(repository._Signer(one), append=True)
    _meta(fleet, f"{version}.targets.json").write_bytes(found.to_bytes())
    # The machine's key signs whatever is there.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repository, "_missing", lambda *_: 0)
        fleet.sign_time()


def endless(fleet: Fleet) -> None:
    """A file that never ends."""
    fleet.publish(SECOND)
    os.truncate(_meta(fleet, "timestamp.json"), 1 << 40)


def device(fleet: Fleet) -> None:
    """A link to what acts where root only opens it, or never ends."""
    fleet.publish(SECOND)
    path = _meta(fleet, "timestamp.json")
    path.unlink()
    path.symlink_to("/dev/zero")


def long_archive(fleet: Fleet) -> None:
    fleet.publish(SECOND)
    for path in (fleet.directory / "targets").iterdir():
        with path.open("ab") as file:
            file.write(bytes(1 << 20))


def expired_root(fleet: Fleet) -> None:
    """Keys that nobody has renewed for a year."""
    persons = [one.public for one in (fleet.ada, fleet.bo, fleet.cy)]
    fleet.repository.begin(persons, fleet.ci.public, now() - timedelta(days=400))
    for one in (fleet.ada, fleet.bo):
        fleet.repository.sign(one, now(), 24, keys=True)
    fleet.publish(SECOND)


def other_root(fleet: Fleet) -> None:
    """Another fleet's repository at the same address."""
    other = fleet.place / "other"
    other.mkdir()
    stranger = Fleet(other)
    stranger.begin()
    stranger.publish(SECOND)
    shutil.rmtree(fleet.directory)
    stranger.directory.rename(fleet.directory)


def root_by_one(fleet: Fleet) -> None:
    """One person names new keys, and signs them with these, too."""
    eve, mallory = key(), key()
    fleet.repository.begin([eve.public, mallory.public, fleet.ada.public], key().public, now())
    path = fleet.directory / "pending/root.json"
    found = Metadata[Root].from_bytes(path.read_bytes())
    for one in (eve, mallory, fleet.ada):
        found.sign(repository._Signer(one), append=True)
    _meta(fleet, "2.root.json").write_bytes(found.to_bytes())


def fast_forward(fleet: Fleet) -> None:
    """A stranger's time of a version that is far ahead."""
    path = _meta(fleet, "timestamp.json")
    found = Metadata[Timestamp].from_bytes(path.read_bytes())
    found.signed.version = 2**31
    path.write_bytes(found.to_bytes())


def no_json(fleet: Fleet) -> None:
    _meta(fleet, "timestamp.json").write_bytes(b"<html>please log in</html>")


def root_that_skips(fleet: Fleet) -> None:
    """The host hides a change of the keys, and shows the next one in its place."""
    persons = [one.public for one in (fleet.ada, fleet.bo, fleet.cy)]
    for _ in range(2):
        fleet.repository.begin(persons, fleet.ci.public, now())
        for one in (fleet.ada, fleet.bo):
            fleet.repository.sign(one, now(), 24, keys=True)
    shutil.copy(_meta(fleet, "3.root.json"), _meta(fleet, "2.root.json"))


def no_version(fleet: Fleet) -> None:
    """Two persons have signed a version that no note of a machine can hold."""
    forged(fleet, fleet.ada, fleet.bo, version=10**12)


def gone(fleet: Fleet) -> None:
    shutil.rmtree(fleet.directory)


ATTACKS: list[tuple[Callable[[Fleet], None], str]] = [
    (rollback, "a rollback is refused"),
    (rollback_with_a_new_time, "a rollback is refused"),
    (frozen, "it is frozen, or this machine's clock is ahead"),
    (mixed, "is not the one that was signed"),
    (mixed_snapshot, "is not the one that was signed"),
    (tampered, "is not the one that was signed"),
    (one_signature, "too few of the keys that count have signed it"),
    (strange_signatures, "too few of the keys that count have signed it"),
    (endless, "is longer than what was signed"),
    (device, "cannot be reached .*is not a regular file"),
    (long_archive, "is longer than what was signed"),
    (expired_root, "an old state"),
    (other_root, "too few of the keys|a rollback is refused"),
    (root_by_one, "too few of the keys that count have signed it"),
    (fast_forward, "too few of the keys that count have signed it"),
    (no_json, "metadata cannot be used"),
    (no_version, "no such version"),
    (root_that_skips, "Expected root version 2 instead got version 3"),
    (gone, "cannot be reached"),
]


@pytest.mark.parametrize(("attack", "why"), ATTACKS, ids=[one.__name__ for one, _ in ATTACKS])
def test_an_attack_on_the_repository_is_refused_and_the_last_good_bundle_stays(
    fleet: Fleet, attack: Callable[[Fleet], None], why: str
) -> None:
    fleet.update()
    attack(fleet)
    before = fleet.bundle()
    with pytest.raises(BundleError, match=why):
        fleet.update()
    assert fleet.bundle() == before
    noted = last_attempt(before)
    assert noted is not None
    assert noted.problem


def test_a_second_bundle_of_one_version_takes_effect_where_its_time_was_signed(
    fleet: Fleet,
) -> None:
    """Two pairs of persons have each published a bundle, from copies of one repository."""
    fleet.update()
    _meta(fleet, "1.targets.json").unlink()
    assert fleet.publish(SECOND) == 1
    assert fleet.update().is_new
    assert (fleet.bundle().directory / "policy.yaml").read_text() == SECOND["policy.yaml"]


@pytest.mark.parametrize("said", ["9999-12-31T23:59:00-14:00", "0001-01-01T00:00:00+14:00", "x"])
def test_a_moment_that_no_calendar_has_stops_no_machine(fleet: Fleet, said: str) -> None:
    """The machine's key is stolen, and signs it."""
    path = _meta(fleet, "timestamp.json")
    found = Metadata[Timestamp].from_bytes(path.read_bytes())
    found.signed.unrecognized_fields[repository.SIGNED_FIELD] = said
    found.sign(repository._Signer(fleet.ci))
    path.write_bytes(found.to_bytes())
    fleet.update()
    (line,) = bundle_lines(fleet.bundle(), now())
    assert "its time signed 0.0 hours ago" in line


def test_an_update_that_finds_another_one_running_is_no_failure(fleet: Fleet) -> None:
    fleet.update()
    with (
        held_lock(fleet.managed / "bundle/update.lock", 0, RuntimeError()),
        pytest.raises(BundleError, match="another update is running"),
    ):
        fleet.update()
    assert last_attempt(fleet.bundle()) is None


def test_a_clock_that_was_set_back_lets_no_update_prolong_a_bundle(fleet: Fleet) -> None:
    """The host is frozen, and shows what the machine has seen."""
    fleet.sign_time(now() - timedelta(hours=20))
    ends = fleet.update().current.ends
    assert fleet.update(now() - timedelta(hours=19)).current.ends == ends
    fleet.sign_time()
    later = fleet.update().current.ends
    assert later is not None
    assert ends is not None
    assert later.seconds > ends.seconds + 19 * 3600


def test_a_wrong_clock_refuses_the_update_and_is_named(fleet: Fleet) -> None:
    fleet.update()
    fleet.publish(SECOND)
    with pytest.raises(BundleError, match=r"clock is 8\d minutes behind the repository's"):
        fleet.update(now() - timedelta(minutes=85))
    assert fleet.version() == 1
    fleet.update(now() - timedelta(minutes=3))
    assert fleet.version() == 2


# --- archives -------------------------------------------------------------------------------------


def _archive(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"x"
) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        member.size = len(data) if kind == tarfile.REGTYPE else 0
        archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


WRONG_ARCHIVES = {
    "parent": _archive("../../../etc/cron.d/x"),
    "absolute": _archive("/etc/passwd"),
    "inner parent": _archive("packs/../../x.json"),
    "dot": _archive("./policy.yaml"),
    "newline": _archive("policy.yaml\n"),
    "long name": _archive("packs/" + "a" * 300 + ".json"),
    "symbolic link": _archive("policy.yaml", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": _archive("policy.yaml", tarfile.LNKTYPE, "/etc/passwd"),
    "directory": _archive("packs", tarfile.DIRTYPE),
    "device": _archive("policy.yaml", tarfile.CHRTYPE),
    "pipe": _archive("policy.yaml", tarfile.FIFOTYPE),
    "sparse": _archive("policy.yaml", tarfile.GNUTYPE_SPARSE),
    "twice": _archive("policy.yaml")[:1024] + _archive("policy.yaml"),
    "torn": _archive("policy.yaml", data=bytes(2000))[:1300],
    "empty": b"\0" * 10240,
    "no archive": b"x" * 600,
    "nothing": b"",
    "other file": _archive("current.json"),
    "a thousand long names": _archive("policy.yaml", tarfile.GNUTYPE_LONGNAME)[:1024] * 2000,
    "a number without end": b"policy.yaml".ljust(100, b"\0")
    + b"0000644\0"
    + bytes(16)
    + b"\x80"
    + b"\xff" * 11
    + bytes(372),
}


@pytest.mark.parametrize("name", WRONG_ARCHIVES)
def test_an_archive_with_anything_but_known_files_is_refused(name: str) -> None:
    with pytest.raises(BundleError, match="the archive is refused"):
        unpack(WRONG_ARCHIVES[name])


@pytest.mark.parametrize("name", ["parent", "symbolic link", "twice"])
def test_even_two_persons_cannot_sign_an_archive_that_leaves_its_directory(
    fleet: Fleet, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.update()
    monkeypatch.setattr(repository, "pack", lambda _files: WRONG_ARCHIVES[name])
    with pytest.raises(BundleError, match="the archive is refused"):
        fleet.publish(SECOND)
    monkeypatch.setattr(repository, "unpack", lambda _archive: {})
    fleet.publish(SECOND)
    with pytest.raises(BundleError, match="the archive is refused"):
        fleet.update()
    assert fleet.version() == 1
    assert sorted(path.name for path in (fleet.managed / "bundle/releases").iterdir()) == [
        fleet.bundle().current.release
    ]


def test_a_bundle_that_this_version_cannot_read_is_refused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.update()
    monkeypatch.setattr(repository, "check_release", lambda _content: [])
    fleet.publish({**SECOND, "maximum.yaml": "deny time: {soon: true}\n"})
    with pytest.raises(BundleError, match=r"cannot be used by this version: maximum\.yaml"):
        fleet.update()
    assert fleet.version() == 1


# --- ends in the middle ---------------------------------------------------------------------------

_WRITES = ("open", "os.mkdir", "os.rename", "os.remove", "os.chmod", "shutil.rmtree", "os.symlink")


def _in_child(work: Callable[[], object]) -> int:
    """Do something in a process of its own. Returns how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BundleError:
            os._exit(3)
        except BaseException:  # noqa: BLE001  the parent reads the status
            os._exit(4)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_an_update_that_is_killed_at_any_step_leaves_the_last_good_bundle(fleet: Fleet) -> None:
    fleet.update()
    fleet.publish(SECOND)
    saved = fleet.place / "saved"
    shutil.copytree(fleet.managed, saved, symlinks=True)

    def killed_at(step: int) -> None:
        left = step

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in _WRITES and str(fleet.managed) in str(arguments[0]):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        fleet.update()

    step, seen, width = 0, set(), 1 if THOROUGH else 3
    while _in_child(partial(killed_at, step)) == -signal.SIGKILL:
        seen.add(fleet.version())
        assert fleet.update().current.version == 2
        assert fleet.version() == 2
        shutil.rmtree(fleet.managed)
        shutil.copytree(saved, fleet.managed, symlinks=True)
        step += width
    assert step > 20
    assert seen == {1, 2}


def test_a_full_disk_leaves_the_last_good_bundle_and_is_named(fleet: Fleet) -> None:
    fleet.update()
    fleet.publish({**SECOND, "dynamic-lists.json": '{"lists": {}}' + " " * 40_000})

    def limited(most: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        fleet.update()

    for most in (0, 100, 600, 1200, 2000, 20_000):
        assert _in_child(partial(limited, most)) == 3
        assert fleet.version() == 1
    assert fleet.update().current.version == 2


# --- the machine's own files ----------------------------------------------------------------------


def test_a_machine_that_is_enrolled_and_has_no_bundle_does_not_start(fleet: Fleet) -> None:
    with pytest.raises(ProblemsError, match="is missing, and this machine is enrolled"):
        fleet.bundle()


@pytest.mark.parametrize("change", ["edit", "add", "remove", "link", "damage", "writable"])
def test_a_release_that_was_changed_on_the_machine_is_not_read(fleet: Fleet, change: str) -> None:
    fleet.update()
    release = fleet.bundle().directory
    file = release / "maximum.yaml"
    match change:
        case "edit":
            file.write_text("allow time: convert_time\n")
        case "add":
            (release / "managed.json").write_text('{"keep": []}')
        case "remove":
            file.unlink()
        case "link":
            file.rename(fleet.place / "elsewhere")
            file.symlink_to(fleet.place / "elsewhere")
        case "damage":
            (fleet.managed / "bundle/current.json").write_text('{"version": 1}')
        case _:
            file.chmod(0o666)
    with pytest.raises(ProblemsError):
        fleet.bundle()
    file.unlink(missing_ok=True)
    fleet.update()
    assert fleet.version() == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("http://policy.example.com/", "must begin with https"),
        ("/srv/policy", "must begin with https"),
        ("file://host/srv", "must begin with https"),
        ("ftp://policy.example.com/", "must begin with https"),
    ],
)
def test_only_https_and_own_directories_are_sources(fleet: Fleet, source: str, why: str) -> None:
    fleet.enrol(source)
    with pytest.raises(ConfigurationError, match=why):
        fleet.update()


def test_a_machine_without_the_root_of_trust_trusts_nobody(fleet: Fleet) -> None:
    (fleet.managed / "bundle-root.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="two persons signed"):
        fleet.update()


# --- clocks, and machines that were away ----------------------------------------------------------


@pytest.mark.parametrize("days", [-400, -3, 3, 400])
def test_a_clock_that_is_set_moves_no_end_of_a_bundle_until_the_next_boot(
    fleet: Fleet, days: int
) -> None:
    fleet.update()
    wrong = now() + timedelta(days=days)
    assert not read_current(fleet.managed).has_ended(wrong)
    fleet.boots()
    current = read_current(fleet.managed)
    # Behind the time of the signature nobody can say how long it holds.
    assert current.has_ended(wrong)
    assert not any(current.has_ended(now() + timedelta(minutes=one)) for one in (-4, 4, 1000))


def test_a_running_time_ends_a_bundle_whatever_the_clock_says(fleet: Fleet) -> None:
    current = fleet.update().current
    assert current.ends is not None
    later = replace(current.ends, seconds=current.ends.seconds - 24 * 3600 - 1)
    assert replace(current, ends=later).has_ended(now() - timedelta(days=400))


def test_a_machine_that_was_away_follows_every_key_that_was_revoked_meanwhile(fleet: Fleet) -> None:
    fleet.update()
    stolen, old = fleet.ci, fleet.place / "old"
    shutil.copytree(fleet.directory, old)
    gone = f"SHA256:{'s' * 43}"
    fleet.publish({**FIRST, "revoked.json": orjson.dumps({"keys": [gone]}).decode()})
    fleet.cy, fleet.ci = key(), key()
    persons = [one.public for one in (fleet.ada, fleet.bo, fleet.cy)]
    fleet.repository.begin(persons, fleet.ci.public, now())
    for one in (fleet.ada, fleet.bo):
        fleet.repository.sign(one, now(), 24, keys=True)
    stop = orjson.dumps({"keys": [gone], "principals": ["*"]}).decode()
    fleet.publish({**FIRST, "revoked.json": stop})
    # While it is away it knows of nothing, and who has the machine's key keeps it so.
    thief = repository.Repository(old)
    thief.sign(stolen, now(), 24)
    fleet.enrol(old.as_uri())
    assert not fleet.update().is_new
    assert (fleet.version(), fleet.bundle().revoked.keys) == (1, frozenset())
    fleet.enrol(fleet.directory.as_uri())
    assert fleet.update().current.version == 3
    revoked = fleet.bundle().revoked
    assert revoked.keys == {gone}
    assert revoked.principals == {"*"}
    thief.sign(stolen, now(), 24)
    fleet.enrol(old.as_uri())
    with pytest.raises(BundleError, match="too few of the keys"):
        fleet.update()
    assert fleet.version() == 3
