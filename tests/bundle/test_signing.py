"""Who must sign what, before a bundle is published."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from securesystemslib.signer import SSlibKey
from tuf.api.metadata import Metadata, Root, Targets

from ironcurtain_proxy.bundle.contents import BundleError
from ironcurtain_proxy.bundle.repository import key_of
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.signing import PublicKey
from tests.bundle.fleet import FIRST, Fleet, key, now
from tests.tables import table


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def content(fleet: Fleet, name: str, text: str) -> Path:
    directory = fleet.place / "new"
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return directory


def test_neither_one_person_twice_nor_the_machine_publishes_a_bundle(fleet: Fleet) -> None:
    fleet.begin()
    fleet.repository.propose(content(fleet, "policy.yaml", "allow time: '*'\n"), now())
    for _ in range(2):
        assert fleet.repository.sign(fleet.ada, now(), 24) == ["signed bundle 2: 1 more must sign"]
    fleet.repository.sign(fleet.ci, now(), 24)
    with pytest.raises(ConfigurationError, match="signs nothing"):
        fleet.repository.sign(key(), now(), 24)
    waiting = fleet.repository.waiting()
    assert [(one.role, one.version, one.missing, len(one.signed)) for one in waiting] == [
        ("targets", 2, 1, 1)
    ]
    fleet.update()
    assert fleet.version() == 1
    assert "published bundle 2" in fleet.repository.sign(fleet.bo, now(), 24)[0]
    assert fleet.repository.waiting() == []


def test_an_archive_that_was_exchanged_after_the_first_signature_is_not_signed(
    fleet: Fleet,
) -> None:
    fleet.begin()
    fleet.repository.propose(content(fleet, "policy.yaml", "deny time: '*'\n"), now())
    fleet.repository.sign(fleet.ada, now(), 24)
    archive = fleet.directory / "pending/bundle.tar"
    archive.write_bytes(archive.read_bytes().replace(b"deny time", b"allow tim"))
    with pytest.raises(BundleError, match="was changed after it was made"):
        fleet.repository.sign(fleet.bo, now(), 24)


def test_new_keys_need_two_signatures_of_the_old_ones_and_machines_follow(fleet: Fleet) -> None:
    fleet.begin()
    fleet.update()
    # Otherwise a change of the keys would be signed with the next bundle, without a look at it.
    thief = fleet.cy
    eve = key()
    persons = [one.public for one in (fleet.ada, fleet.bo, eve)]
    fleet.repository.begin(persons, fleet.ci.public, now())
    shown = [*fleet.repository.changes()]
    assert f"removed   {thief.key} for root" in shown
    assert f"added     {eve.key} for targets" in shown
    for one, told in (
        (fleet.ada, "signed root 2: 1 more must sign"),
        (fleet.bo, "published root 2"),
    ):
        with pytest.raises(ConfigurationError, match="--new-keys"):
            fleet.repository.sign(one, now(), 24)
        assert fleet.repository.sign(one, now(), 24, keys=True) == [told]
    # What cy has signed before counts no more: the same files are signed by eve.
    fleet.cy = eve
    assert fleet.publish({**FIRST, "policy.yaml": "ask time: '*'\n"}) == 2
    assert fleet.update().current.version == 2
    fleet.repository.propose(content(fleet, "policy.yaml", "allow time: '*'\n"), now())
    with pytest.raises(ConfigurationError, match="signs nothing"):
        fleet.repository.sign(thief, now(), 24)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    table("bundle/signing.what_no_machine_could_read", list[tuple[str, str, str]]),
)
def test_what_no_machine_could_read_is_not_proposed(
    fleet: Fleet, name: str, text: str, why: str
) -> None:
    fleet.begin()
    with pytest.raises(ConfigurationError, match=why):
        fleet.repository.propose(content(fleet, name, text), now())


def test_a_link_among_the_files_is_not_proposed(fleet: Fleet) -> None:
    fleet.begin()
    directory = content(fleet, "policy.yaml", "deny time: '*'\n")
    (directory / "revoked.json").symlink_to("/etc/passwd")
    with pytest.raises(ConfigurationError, match="revoked"):
        fleet.repository.propose(directory, now())


CHANGES: dict[str, Callable[[Targets], object]] = {
    "for ever": lambda said: setattr(said, "expires", now() + timedelta(days=5000)),
    "not the next": lambda said: setattr(said, "version", said.version + 1),
    "more than that": lambda said: said.unrecognized_fields.update(custom=1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [Targets, Root])
def test_what_somebody_put_beside_a_bundle_is_not_signed_with_it(
    fleet: Fleet, change: str, kind: type[Targets | Root]
) -> None:
    """Whoever has the directory alone: what is signed for ever is also in force for ever."""
    fleet.begin()
    fleet.repository.begin([fleet.ada.public, fleet.bo.public], fleet.ci.public, now())
    fleet.repository.propose(content(fleet, "policy.yaml", "deny time: '*'\n"), now())
    path = fleet.directory / f"pending/{kind.type}.json"
    found = Metadata[Targets].from_bytes(path.read_bytes())
    CHANGES[change](found.signed)
    path.write_bytes(found.to_bytes())
    with pytest.raises(BundleError, match="is not as `bundle sign` makes it"):
        fleet.repository.sign(fleet.ada, now(), 24, keys=True)


def test_one_key_cannot_stand_for_two_persons_or_for_the_machine(fleet: Fleet) -> None:
    ada, bo, ci = (one.public for one in (fleet.ada, fleet.bo, fleet.ci))
    for persons, machine in (([ada], ci), ([ada, ada], ci), ([ada, bo], bo)):
        with pytest.raises(ConfigurationError, match="must"):
            fleet.repository.begin(persons, machine, now())


OWN = "f" * 64
TWICE = r"names what is no key of one person|let one key sign a bundle alone"


def _with(key: SSlibKey) -> Callable[[Root], object]:
    def change(root: Root) -> None:
        root.keys[key.keyid] = key
        root.roles["targets"].keyids.append(key.keyid)

    return change


def _other_sign(public: PublicKey) -> SSlibKey:
    return key_of(PublicKey(public.raw[:31] + bytes([public.raw[31] ^ 0x80])))


STOLEN, MACHINE = key().public, key()
ALONE: dict[str, Callable[[Root], object]] = {
    "one signature": lambda root: setattr(root.roles["targets"], "threshold", 1),
    "a key under two ids": _with(
        SSlibKey(OWN, "ed25519", "ed25519", {"public": STOLEN.raw.hex().upper()})
    ),
    "the machine's key": _with(key_of(MACHINE.public)),
    "the other sign of a key": _with(_other_sign(STOLEN)),
    "the other sign of the machine's key": _with(_other_sign(MACHINE.public)),
    "a key for which anybody signs": _with(key_of(PublicKey(b"\1" + bytes(31)))),
    "a key of another kind": _with(SSlibKey(OWN, "rsa", "rsassa-pss-sha256", {"public": "x"})),
    "an id without a key": lambda root: root.roles["targets"].keyids.append(OWN),
}


@pytest.mark.parametrize("change", ALONE)
def test_keys_by_which_one_person_could_sign_alone_are_not_signed(
    fleet: Fleet, change: str
) -> None:
    """Whoever has one stolen key and the directory proposes them."""
    fleet.begin()
    fleet.repository.begin([fleet.ada.public, STOLEN], MACHINE.public, now())
    path = fleet.directory / "pending/root.json"
    found = Metadata[Root].from_bytes(path.read_bytes())
    ALONE[change](found.signed)
    path.write_bytes(found.to_bytes())
    with pytest.raises(ConfigurationError, match=TWICE):
        fleet.repository.sign(fleet.ada, now(), 24, keys=True)
