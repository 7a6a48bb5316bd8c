"""What a public key is, in whatever form it is written.

One key has several forms: as SSH writes it, and in COSE (RFC 9052), of which the parts may stand in
any order, with numbers of any width. And one private key has several public ones, which differ by a
sign. So persons are told apart by `shared`, and keys are revoked by the name that each has in SSH.

A key for which anybody can sign, or nobody, is none. All is plain arithmetic: files are read
without the libraries that check signatures.
"""

from typing import Final, TypeAlias

ED25519: Final = b"ssh-ed25519"
KEY_BYTES: Final = 32
_RSA_BYTES: Final = 256
"""What authenticators make. Shorter ones can be factored some day, those of a few bytes today."""
# The curves of Ed25519 (RFC 8032, 5.1) and P-256 (FIPS 186).
_P: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_P256: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_P256_B: Final = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_Point: TypeAlias = tuple[int, int, int, int]


def ssh_text(data: bytes) -> bytes:
    """Return bytes as SSH writes them: after their number."""
    return len(data).to_bytes(4, "big") + data


def same(raw: bytes) -> bytes:
    """Return what all public keys of one private key of Ed25519 have in common."""
    return ED25519 + (int.from_bytes(raw, "little") % 2**255).to_bytes(32)


def is_sound(raw: bytes) -> bool:
    """Return whether these bytes are a point that only a private key of Ed25519 leads to.

    For a point of small order anybody can sign. With such a point added, one private key has eight
    public ones.
    """
    y = int.from_bytes(raw, "little") % 2**255
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if y >= _P or x == 0 or x * x % _P != square:
        return False
    point: _Point = (x, y, 1, x * y % _P)
    found: _Point = (0, 1, 1, 0)
    for bit in f"{_ORDER:b}":
        found = _sum(found, found)
        found = _sum(found, point) if bit == "1" else found
    return found[0] == 0 and found[1] == found[2]


def _sum(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0])
    b = (one[1] + one[0]) * (other[1] + other[0])
    c, d = 2 * _D * one[3] * other[3], 2 * one[2] * other[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def of_cose(raw: bytes) -> tuple[bytes, bytes]:
    """Return what all keys of one secret share, and the key as SSH writes it.

    Raises:
        ValueError: it is no key in COSE, or one for which anybody can sign, or nobody.
    """
    match _cose(raw):
        case {1: 1, -1: 6, -2: bytes(x)} if len(x) == KEY_BYTES and is_sound(x):
            return same(x), ssh_text(ED25519) + ssh_text(x)
        case {1: 2, -1: 1, -2: bytes(first), -3: bytes(second)}:
            a, b = int.from_bytes(first), int.from_bytes(second)
            if max(a, b) < _P256 and (b * b - a * a * a + 3 * a - _P256_B) % _P256 == 0:
                point = b"\4" + a.to_bytes(32) + b.to_bytes(32)
                kind = b"ecdsa-sha2-nistp256"
                # What follows differs by its sign alone.
                return kind + point[:33], ssh_text(kind) + ssh_text(b"nistp256") + ssh_text(point)
        case {1: 3, -1: bytes(n), -2: bytes(e)}:
            modulus, power = [one.lstrip(b"\0") for one in (n, e)]
            if len(modulus) >= _RSA_BYTES and int.from_bytes(power) > 1:
                numbers = [ssh_text(b"\0" * (one[0] >> 7) + one) for one in (power, modulus)]
                return b"ssh-rsa" + modulus, ssh_text(b"ssh-rsa") + b"".join(numbers)
        case _:
            pass
    raise ValueError("no key that one person alone can have")


def _cose(data: bytes) -> dict[int, int | bytes]:
    """Return the parts of a key, in whatever order and width its numbers are written.

    Raises:
        ValueError: it is no map from numbers to numbers and bytes.
    """
    items: list[int | bytes] = []
    at = 1
    while at < len(data):
        kind, size = divmod(data[at], 32)
        at, width = at + 1, 0
        if size >= 24:  # noqa: PLR2004  the number is in the next 1, 2, 4 or 8 bytes
            width = 1 << (size - 24)
            size, at = int.from_bytes(data[at : at + width]), at + width
        if kind == 2:  # noqa: PLR2004  bytes; 0 and 1 are numbers
            items.append(data[at : at + size])
            at += size
        else:
            items.append(~size if kind else size)
        if kind > 2 or width > 8 or at > len(data):  # noqa: PLR2004
            raise ValueError("no key in COSE")
    found = dict(zip(items[::2], items[1::2], strict=True))
    numbers = {one: value for one, value in found.items() if isinstance(one, int)}
    if data[:1] != bytes([0xA0 + len(numbers)]) or 2 * len(numbers) != len(items):
        raise ValueError("no key in COSE")
    return numbers
