"""The states that clients without a handshake carry, and the calls that outlive their proxy.

A state holds an id and digests, and nothing of the call: the agent could read it. It is sealed with
a key that all proxies of a user share, and says whose it is.

A call that waits for a reviewer has not been sent. While its client holds a state of it, a file of
its id is kept and locked:

    state.key         32 bytes
    held/3f….         a call that is not sent yet; its proxy holds the lock as long as it lives

Its proxy removes the file before the call goes on. If the proxy is killed first, another one may
take the file with a state that its client brings back, and make the call anew: it is judged, asked
about and recorded like any call. Whoever removes the file makes the call, so it is made once.
"""

import base64
import fcntl
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, encode
from ironcurtain_proxy.private_files import (
    held_lock,
    is_at,
    locked_file,
    make_private_directory,
    read_private,
    write_whole,
)

if TYPE_CHECKING:
    from ironcurtain_proxy.model.values import Json

_log: Final = logging.getLogger(__name__)

_PREFIX: Final = "v1."
_LONGEST: Final = 1024
_KEY_BYTES: Final = 32
_KEY_SECONDS: Final = 10.0
_ID: Final = frozenset("0123456789abcdef")
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC

_FORGOTTEN: Final = 86_400.0
"""Seconds after which the file of a call whose client never came back is removed."""


class State(Struct, frozen=True, kw_only=True):
    """What a state says."""

    id: str
    """The call's."""
    call: str
    """A digest of what is asked for."""
    leg: int
    """How many answers of the call were no result."""


class Sealing:
    """Seals states, and keeps the calls that another proxy may take up."""

    def __init__(self, directory: Path | None = None, principal: str = "") -> None:
        """Begin without a call. Nothing is read or written before there is one.

        Args:
            directory: of the user; None: no call outlives this proxy.
            principal: whose agent calls, where that is not the user.
        """
        self._directory = directory
        self._principal = principal.encode()
        self._key = b"" if directory is not None else secrets.token_bytes(_KEY_BYTES)
        self._held: dict[str, int] = {}
        """The locked file of each call that is not sent yet."""

    # --- states

    def sealed(self, state: State) -> str:
        """Return a state as the client gets it."""
        said = encode({"id": state.id, "call": state.call, "leg": state.leg})
        return _PREFIX + base64.urlsafe_b64encode(self._mac(said) + said).decode("ascii")

    def opened(self, text: "Json") -> State | None:
        """Return what a state says, or None if it is not ours as it is, or another principal's."""
        if not isinstance(text, str) or len(text) > _LONGEST or not text.startswith(_PREFIX):
            return None
        with suppress(ValueError):
            sealed = base64.b64decode(text[len(_PREFIX) :], b"-_", validate=True)
            mac, said = sealed[:32], sealed[32:]
            # Of the ways to write the same bytes, only ours is known.
            is_ours = text == _PREFIX + base64.urlsafe_b64encode(sealed).decode("ascii")
            if is_ours and hmac.compare_digest(mac, self._mac(said)):
                return _read(said)
        return None

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._secret(), self._principal + b"\0" + said, "sha256")

    def _secret(self) -> bytes:
        """Return the key that all proxies of the user share, made once."""
        if not self._key and self._directory is not None:
            try:
                self._key = _shared_key(self._directory / "state.key")
            except (OSError, ConfigurationError) as error:
                _log.warning("calls end with this proxy: state.key cannot be used: %s", error)
                self._key, self._directory = secrets.token_bytes(_KEY_BYTES), None
        return self._key

    # --- calls that are not sent yet

    def keep(self, call: str) -> None:
        """Let another proxy take up a call, if this one is killed before it goes on."""
        if self._directory is None or call in self._held:
            return
        place = self._directory / "held"
        try:
            make_private_directory(place)
            descriptor = locked_file(place / call)
            if descriptor is not None and not self._held:
                _forget_old(place, os.fstat(descriptor).st_mtime)
        except OSError as error:
            _log.warning("a call that waits ends with this proxy: %s", error)
            return
        if descriptor is not None:
            self._held[call] = descriptor

    def spend(self, call: str) -> None:
        """Let no other proxy take up a call: it goes on here, or is withdrawn.

        Raises:
            OSError: its file cannot be removed, so it must not go on.
        """
        descriptor = self._held.pop(call, None)
        if descriptor is None or self._directory is None:
            return
        try:
            (self._directory / "held" / call).unlink()
        finally:
            os.close(descriptor)

    def leave(self, call: str) -> None:
        """Leave a call to another proxy: this one ends."""
        descriptor = self._held.pop(call, None)
        if descriptor is not None:
            os.close(descriptor)

    def take_up(self, call: str) -> bool:
        """Take a call from a proxy that is gone. False: it is not there, or another has it."""
        if self._directory is None or not call or not _ID.issuperset(call):
            return False
        path = self._directory / "held" / call
        try:
            return _take(path)
        except OSError:
            return False


def digest_of(method: str, params: "Mapping[str, Json]") -> str:
    """Return SHA-256 of what is asked for, equal for equal requests."""
    try:
        keys = ("name", "uri", "arguments", "ref", "argument", "context")
        what = {key: _ordered(params.get(key)) for key in keys}
        return hashlib.sha256(encode({"method": method, **what})).hexdigest()
    except (ValueError, RecursionError):
        return secrets.token_hex()  # nested too deep to be compared: equal to nothing


def _ordered(value: "Json") -> "Json":
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value


def _read(said: bytes) -> State | None:
    message = decode(said)
    if isinstance(message, Malformed):
        return None
    leg = message.get("leg")
    return State(
        id=str(message.get("id")),
        call=str(message.get("call")),
        leg=leg if isinstance(leg, int) else 0,
    )


def _shared_key(path: Path) -> bytes:
    make_private_directory(path.parent)
    with held_lock(path.with_suffix(".lock"), _KEY_SECONDS, OSError("another proxy makes it")):
        if not path.exists():
            write_whole(path, secrets.token_bytes(_KEY_BYTES), locked=True)
    found = read_private(path, _KEY_BYTES + 1, "the key")
    if len(found) != _KEY_BYTES:
        raise OSError(f"{path} has not {_KEY_BYTES} bytes: remove it")
    return found


def _take(path: Path) -> bool:
    descriptor = os.open(path, _OPEN)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(descriptor, path):
            return False
        path.unlink()
        return True
    finally:
        os.close(descriptor)


def _forget_old(place: Path, now: float) -> None:
    for path in place.iterdir():
        with suppress(OSError):
            if path.lstat().st_mtime < now - _FORGOTTEN:
                _take(path)
