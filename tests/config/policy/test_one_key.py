"""One key is one key, in whatever form it stands in `reviewers.json`; some keys are none."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import cbor2
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ironcurtain_proxy.config.policy.reviewers_file import ReviewersFile, read_reviewers
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.key_forms import is_sound, ssh_text
from ironcurtain_proxy.signing import Passkey, PublicKey, name_of, passkey
from tests.config.files import said

P = 2**255 - 19
P256 = 2**256 - 2**224 + 2**192 + 2**96 - 1
HOME = Path("/home/ada")
RAW = ed25519.Ed25519PrivateKey.from_private_bytes(b"1" * 32).public_key().public_bytes_raw()
POINT = ec.derive_private_key(7, ec.SECP256R1()).public_key().public_numbers()
RSA = rsa.generate_private_key(65537, 2048).public_key()
N = RSA.public_numbers().n
Cose = dict[int, int | bytes]
EC: Cose = {1: 2, 3: -7, -1: 1, -2: POINT.x.to_bytes(32), -3: POINT.y.to_bytes(32)}
OKP: Cose = {1: 1, 3: -8, -1: 6, -2: RAW}
BIG: Cose = {1: 3, 3: -257, -1: N.to_bytes(256), -2: b"\1\0\1"}


def ssh(raw: bytes) -> str:
    return f"ssh-ed25519 {b64encode(PublicKey(raw).blob).decode()} a"


def web(cose: Cose | bytes, credential: bytes = b"") -> str:
    raw = cose if isinstance(cose, bytes) else cbor2.dumps(cose)
    number = credential or name_of(raw).encode()[:20]
    return Passkey("https://q.example", number, raw).line


def turned(cose: Cose) -> Cose:
    return dict(reversed(cose.items()))


def wide(cose: Cose) -> bytes:
    """The same, with numbers and lengths in more bytes than they need."""
    found = bytes([0xA0 + len(cose)])
    for name, value in cose.items():
        for one in (name, value):
            if isinstance(one, bytes):
                found += b"\x5b" + len(one).to_bytes(8) + one
            else:
                kind, number = (0x20, ~one) if one < 0 else (0, one)
                found += bytes([kind + 25]) + number.to_bytes(2)
    return found


def negative(raw: bytes) -> bytes:
    return raw[:-1] + bytes([raw[-1] ^ 0x80])


def read(path: Path, *lines: str) -> str:
    entries = [{"person": f"p{n}", "key": one, "risk": "high"} for n, one in enumerate(lines)]
    path.write_bytes(orjson.dumps({"reviewers": entries}))
    report = Report()
    found = read_reviewers(path, HOME, report)
    assert (found is None) == report.has_errors
    return "\n".join(said(report))


ONE_KEY: dict[str, tuple[str, str]] = {
    "P-256 in another order": (web(EC), web(turned(EC))),
    "P-256 with wide numbers": (web(EC), web(wide(EC))),
    "P-256 with a leading zero": (web(EC), web({**EC, -2: b"\0" + POINT.x.to_bytes(32)})),
    "P-256 with a part more": (web(EC), web({**EC, 2: b"name"})),
    "P-256 with the other sign": (web(EC), web({**EC, -3: (P256 - POINT.y).to_bytes(32)})),
    "Ed25519 in another order": (web(OKP), web(turned(OKP))),
    "Ed25519 of SSH, and a passkey": (ssh(RAW), web(OKP)),
    "Ed25519 with the other sign": (ssh(RAW), ssh(negative(RAW))),
    "RSA in another order": (web(BIG), web(turned(BIG))),
    "RSA with a leading zero": (web(BIG), web({**BIG, -1: b"\0" + N.to_bytes(256)})),
    "RSA with another power": (web(BIG), web({**BIG, -2: b"\3"})),
}


@pytest.mark.parametrize("case", ONE_KEY)
def test_one_key_in_two_forms_is_not_two_persons(case: str, tmp_path: Path) -> None:
    first, second = ONE_KEY[case]
    assert (read(tmp_path / "f", first), read(tmp_path / "f", second)) == ("", "")
    assert "$.reviewers[1].key: is the key of $.reviewers[0]" in read(tmp_path / "f", first, second)


def small_order() -> list[bytes]:
    """All encodings of the points of which eight times is nothing, non-canonical ones, too."""
    eighth = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    ys = (0, 1, P - 1, P, P + 1, eighth, P - eighth)
    signs = (0, 1 << 255)
    return [(y | sign).to_bytes(32, "little") for y in ys for sign in signs]


@pytest.mark.parametrize("raw", small_order())
@pytest.mark.parametrize("line", [ssh, lambda raw: web({**OKP, -2: raw})], ids=["ssh", "web"])
def test_a_key_for_which_anybody_can_sign_is_refused(
    line: Callable[[bytes], str], raw: bytes, tmp_path: Path
) -> None:
    assert "for which anybody can sign" in read(tmp_path / "f", line(raw))


NONE: dict[str, Cose | bytes] = {
    "the point at infinity": {**EC, -2: bytes(32), -3: bytes(32)},
    "infinity without bytes": {**EC, -2: b"", -3: b""},
    "off the curve": {**EC, -3: (POINT.y + 1).to_bytes(32)},
    "beyond the field": {**EC, -2: (POINT.x + P256).to_bytes(33)},
    "another curve": {**EC, -1: 2},
    "half a point": {**EC, -3: 1},
    "a part twice": b"\xa6" + cbor2.dumps(EC)[1:] + b"\x01\x02",
    "bytes after the end": cbor2.dumps(EC) + b"\x01",
    "a number of another size": b"\xa5\x1e" + cbor2.dumps(EC)[1:],
    "a text in it": cbor2.dumps({**EC, 2: "name"}),
    "as U2F has it": b"\4" + POINT.x.to_bytes(32) + POINT.y.to_bytes(32),
    "Ed25519 cut off": {**OKP, -2: RAW[:31]},
    "no point of Ed25519": {**OKP, -2: (2).to_bytes(32, "little")},
    "RSA that needs no secret": {**BIG, -2: b"\1"},
    "RSA of a short number": {**BIG, -1: N.to_bytes(256)[:64]},
}


@pytest.mark.parametrize("case", NONE)
def test_what_is_no_key_of_one_person_is_refused(case: str, tmp_path: Path) -> None:
    assert "$.reviewers[0].key" in read(tmp_path / "f", web(NONE[case]))


def test_a_key_with_a_point_of_small_order_added_is_none() -> None:
    # (x, y) + (0, -1) = (-x, -y): the order is twice a prime one.
    y = P - int.from_bytes(RAW, "little") % 2**255
    assert is_sound(RAW)
    assert not is_sound(y.to_bytes(32, "little"))


def test_a_passkey_is_revoked_by_the_name_of_its_key_too(tmp_path: Path) -> None:
    path = tmp_path / "f"
    named = [
        (OKP, PublicKey(RAW).fingerprint),
        (EC, _as_ssh(POINT.public_key())),
        (BIG, _as_ssh(RSA)),
    ]
    for cose, name in named:
        assert read(path, web(cose, b"a number of it")) == ""
        file = ReviewersFile(path=path, home=HOME)
        (key,) = file.now().keys.values()
        assert not file.now().has_revoked(key)
        file.revoked = frozenset({name})
        assert file.now().has_revoked(key)
        again = passkey(web(turned(cose), b"another number"))
        assert again is not None
        assert name in again.names


def _as_ssh(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> str:
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    kind, encoded = line.split()
    blob = b64decode(encoded)
    assert blob.startswith(ssh_text(kind))
    return name_of(blob)
