"""A manifest that we did not write is not believed."""

from collections.abc import Callable

import orjson
import pytest

from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.rollback import listed, restore
from ironcurtain_proxy.snapshots.snapshot import Snapshot
from tests.snapshots.snapshot_fixture import Scene, real, seen

pytestmark = pytest.mark.requirement("B-62")

Tamper = Callable[[dict[str, object], Scene], None]


def _with_row(manifest: dict[str, object], path: str) -> None:
    row = list(manifest["before"][0])  # type: ignore[index]
    manifest["before"].append([path, *row[1:]])  # type: ignore[attr-defined]


def outside_its_roots(manifest: dict[str, object], place: Scene) -> None:
    _with_row(manifest, str(place.root / "outside"))


def with_dots(manifest: dict[str, object], place: Scene) -> None:
    _with_row(manifest, f"{place.work}/held/..")


def relative(manifest: dict[str, object], place: Scene) -> None:
    manifest["roots"][0] = "held"  # type: ignore[index]


def the_root_directory(manifest: dict[str, object], place: Scene) -> None:
    manifest["roots"] = ["/"]


def our_own_state(manifest: dict[str, object], place: Scene) -> None:
    manifest["roots"] = [str(place.root / "state" / "config.json")]
    manifest["before"] = []


def around_our_own_state(manifest: dict[str, object], place: Scene) -> None:
    manifest["roots"] = [str(place.root)]
    manifest["before"] = []


def a_protected_place(manifest: dict[str, object], place: Scene) -> None:
    manifest["roots"] = [str(place.root / "keys" / "id_rsa")]
    manifest["before"] = []


def a_device(manifest: dict[str, object], place: Scene) -> None:
    manifest["before"][1][1] = "other"  # type: ignore[index]


def a_digest_that_is_a_path(manifest: dict[str, object], place: Scene) -> None:
    manifest["before"][1][6] = "../../../etc/passwd"  # type: ignore[index]


def another_id(manifest: dict[str, object], place: Scene) -> None:
    manifest["id"] = "two"


def another_version(manifest: dict[str, object], place: Scene) -> None:
    manifest["version"] = 2


def in_no_directory(manifest: dict[str, object], place: Scene) -> None:
    del manifest["before"][0]  # type: ignore[attr-defined]


def a_strange_mode(manifest: dict[str, object], place: Scene) -> None:
    manifest["before"][1][2] = 0o170000  # type: ignore[index]


@pytest.mark.parametrize(
    "tamper",
    [
        outside_its_roots,
        with_dots,
        relative,
        the_root_directory,
        our_own_state,
        around_our_own_state,
        a_protected_place,
        a_device,
        a_digest_that_is_a_path,
        another_id,
        another_version,
        in_no_directory,
        a_strange_mode,
    ],
    ids=lambda tamper: tamper.__name__,
)
def test_a_manifest_that_we_did_not_write_is_not_believed(
    place: Scene, called: Snapshot, tamper: Tamper
) -> None:
    file = called.place / "manifest.json"
    manifest = orjson.loads(file.read_bytes())
    tamper(manifest, place)
    file.write_bytes(orjson.dumps(manifest))
    left = seen(place.work)
    with pytest.raises(RollbackError):
        restore("one", place.snapshots, force=True, protected=[real(place.root / "keys")])
    assert seen(place.work) == left


def test_a_manifest_of_no_sense_is_not_listed(place: Scene, called: Snapshot) -> None:
    (called.place / "manifest.json").write_text("{")
    assert listed(place.snapshots) == []
    with pytest.raises(RollbackError):
        restore("one", place.snapshots)


@pytest.mark.parametrize("first", [True, False], ids=["protected first", "protected last"])
def test_one_protected_root_among_others_is_enough_to_put_nothing_back(
    place: Scene, called: Snapshot, first: bool
) -> None:
    file = called.place / "manifest.json"
    manifest = orjson.loads(file.read_bytes())
    key = str(place.root / "keys" / "id_rsa")
    manifest["roots"] = [key, *manifest["roots"]] if first else [*manifest["roots"], key]
    file.write_bytes(orjson.dumps(manifest))
    left = seen(place.work)
    with pytest.raises(RollbackError, match="is protected"):
        restore("one", place.snapshots, force=True, protected=[real(place.root / "keys")])
    assert seen(place.work) == left
