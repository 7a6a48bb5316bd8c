"""The repository of a fleet's bundles: what is signed, by whom, and what is published.

Theory of operation. A repository is a directory that any host of static files can serve:

    metadata/1.root.json …      which keys count: two of three persons sign a change
    metadata/7.targets.json     the bundle of version 7: two of three persons sign it
    metadata/9.snapshot.json    which targets are in force      ┐ signed by one key of a machine,
    metadata/timestamp.json     which snapshot is in force      ┘ anew at least once a day
    targets/HASH.bundle.tar     the archive
    pending/                    what lacks signatures, with those that it has

The metadata is that of The Update Framework (TUF), so that stolen keys, an old copy, a frozen host
and mixed versions are found by its rules and its library. Persons sign with the keys that they log
in with (see `signing`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Key, SecretsHandler, Signature, Signer, SSlibKey
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.api.serialization import DeserializationError

from ironcurtain_proxy.bundle.contents import (
    MOST_ARCHIVE,
    BundleError,
    check_release,
    pack,
    read_directory,
    unpack,
    write_public,
)
from ironcurtain_proxy.config.policy.managed import (
    REVOKED_NAME,
    RevokedForm,
    digest_of,
    shown_time,
)
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.reading.forms import read_form
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.key_forms import is_sound
from ironcurtain_proxy.signing import PublicKey

TARGET: Final = "bundle.tar"
SIGNED_FIELD: Final = "ironcurtain-signed"
"""The field of a timestamp with the moment of its signature, in ISO 8601."""
_PERSONS: Final = ("root", "targets")
_MACHINE: Final = ("snapshot", "timestamp")
_ROOT_DAYS: Final = 365
_TARGETS_DAYS: Final = 180
_KEPT_SNAPSHOTS: Final = 3

S = TypeVar("S", Root, Targets, Snapshot, Timestamp)


class PrivateKey(Protocol):
    """A private key, in a file or with an agent."""

    @property
    def public(self) -> PublicKey:
        """Its public key."""

    def sign_metadata(self, data: bytes) -> bytes:
        """Return the signature of a bundle's metadata."""


class _Signer(Signer):
    """A private key in the form that the library takes."""

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        self._key = key_of(private.public)

    @property
    def public_key(self) -> Key:
        return self._key

    def sign(self, payload: bytes) -> Signature:
        return Signature(self._key.keyid, self._private.sign_metadata(payload).hex())

    @classmethod
    def from_priv_key_uri(
        cls, priv_key_uri: str, public_key: Key, secrets_handler: SecretsHandler | None = None
    ) -> "_Signer":
        raise NotImplementedError


def key_of(public: PublicKey) -> SSlibKey:
    """Return a public key in the form of the metadata. Its id is the hash of the raw key."""
    keyid = sha256(public.blob).hexdigest()
    return SSlibKey(keyid, "ed25519", "ed25519", {"public": public.raw.hex()})


def _public(key: Key) -> PublicKey:
    return PublicKey(bytes.fromhex(str(key.keyval.get("public"))))


def _is_ours(key: Key) -> bool:
    """Return whether `key_of` writes such a key, and one person alone can sign for it."""
    with suppress(ValueError):
        return key == key_of(_public(key)) and is_sound(_public(key).raw)
    return False


def fingerprint(key: Key) -> str:
    """Return a key's name, as `ssh-keygen -l` prints it."""
    return _public(key).fingerprint


class Waiting(Struct, frozen=True, kw_only=True):
    """Metadata that lacks signatures."""

    role: str
    version: int
    signed: tuple[str, ...]
    """Fingerprints of the keys that have signed it."""
    missing: int
    """The number of further keys that must sign it."""
    keys: tuple[str, ...]
    """Fingerprints of the keys that may sign."""


class Repository:
    """A directory with signed bundles."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._metadata = directory / "metadata"
        self._pending = directory / "pending"
        self._targets = directory / "targets"

    def begin(
        self,
        persons: Sequence[PublicKey],
        machine: PublicKey,
        now: datetime,
        roots: Sequence[PublicKey] = (),
    ) -> None:
        """Propose which keys count from now on.

        Args:
            persons: whose keys sign bundles, two of them each.
            machine: the key that signs the time.
            now: aware, UTC.
            roots: whose keys sign a change of the keys, or empty if it is the persons.

        Raises:
            ConfigurationError: one key is enough for two signatures, or signs what a person must.
        """
        for group in (persons, roots or persons):
            if len({one.shared for one in group}) < len(group) or len(group) < 2:  # noqa: PLR2004  two must sign
                raise ConfigurationError("two different keys must sign: give at least two --person")
        if machine.shared in {one.shared for one in (*persons, *roots)}:
            raise ConfigurationError("the key of --machine must not be a person's: it signs alone")
        before = self.root()
        root = Root(
            version=1 if before is None else before.signed.version + 1,
            expires=_until(now, days=_ROOT_DAYS),
        )
        for role, keys in (("root", roots or persons), ("targets", persons)):
            for key in keys:
                root.add_key(key_of(key), role)
            root.roles[role].threshold = 2
        for role in _MACHINE:
            root.add_key(key_of(machine), role)
        self._make_directories()
        write_public(self._pending / "root.json", Metadata(root).to_bytes())

    def propose(self, content: Path, now: datetime) -> int:
        """Propose the files of a directory as the next bundle. Return its version.

        Raises:
            ConfigurationError: they cannot be used, or there is no repository yet.
        """
        self._need_root()
        problems = check_release(content)
        files = read_directory(content)
        if problems:
            raise ConfigurationError("\n".join([str(one) for one in problems]))
        found = read_form(content / REVOKED_NAME, RevokedForm, Report())
        if found is not None and (idle := found[1].idle()):
            why = "write whole ids (`grants list --json`) and names, fingerprints as SHA256:…, or *"
            raise ConfigurationError(f"{REVOKED_NAME}: {idle[0][:80]!r} takes nothing back: {why}")
        archive = pack(files)
        if len(archive) > MOST_ARCHIVE:
            raise ConfigurationError(f"{content} is too large for a bundle")
        targets = self._next(archive, _until(now, days=_TARGETS_DAYS))
        self._make_directories()
        write_public(self._pending / TARGET, archive)
        write_public(self._pending / "targets.json", Metadata(targets).to_bytes())
        return targets.version

    def _next(self, archive: bytes, expires: datetime) -> Targets:
        before = self.published()
        return Targets(
            version=1 if before is None else before.signed.version + 1,
            expires=expires,
            targets={TARGET: TargetFile.from_data(TARGET, archive, ["sha256"])},
        )

    def sign(
        self, private: PrivateKey, now: datetime, hours: int, *, keys: bool = False
    ) -> list[str]:
        """Sign whatever a key may sign. Return what was done, in words.

        Args:
            private: the key.
            now: aware, UTC.
            hours: how long the signature of a machine's key holds.
            keys: whether to sign a change of the keys, too. Whoever has one stolen key puts such a
                change beside a bundle, for the next person who signs that.

        Raises:
            ConfigurationError: it may sign nothing here, or a change that one key could make alone.
            BundleError: the archive is not the one that the metadata names, or what waits says more
                than `begin` and `propose` do, which is more than is shown.
        """
        signer = _Signer(private)
        done: list[str] = []
        pending_root = _read(self._pending / "root.json", Root)
        if pending_root is not None and keys:
            done += self._sign_root(pending_root, signer, now)
        root = self.root()
        pending = _read(self._pending / "targets.json", Targets)
        if root is not None and pending is not None:
            done += self._sign_targets(root, pending, signer, now)
        if root is not None and signer.public_key.keyid in root.signed.roles["timestamp"].keyids:
            done += self._sign_time(root, signer, now, hours)
        if not done:
            raise ConfigurationError(
                f"the key {private.public.fingerprint} signs nothing in {self.directory}: either "
                "nothing waits for it, or it is not among the keys, or keys wait that --new-keys "
                "signs; see `bundle show`"
            )
        return done

    def _sign_root(self, pending: Metadata[Root], signer: _Signer, now: datetime) -> list[str]:
        before = self.root()
        keys = set(pending.signed.roles["root"].keyids)
        keys |= set() if before is None else set(before.signed.roles["root"].keyids)
        if signer.public_key.keyid not in keys:
            return []
        if _needs_one(pending.signed):
            raise ConfigurationError("the keys that wait would let one key sign a bundle alone")
        said, version = pending.signed, 1 if before is None else before.signed.version + 1
        _check_proposed(said, Root(version, keys=said.keys, roles=said.roles), now, _ROOT_DAYS)
        pending.sign(signer, append=True)
        missing = _missing_for_root(before, pending)
        if missing:
            write_public(self._pending / "root.json", pending.to_bytes())
            return [f"signed root {version}: {missing} more must sign"]
        write_public(self._metadata / f"{version}.root.json", pending.to_bytes())
        (self._pending / "root.json").unlink()
        return [f"published root {version}"]

    def _sign_targets(
        self, root: Metadata[Root], pending: Metadata[Targets], signer: _Signer, now: datetime
    ) -> list[str]:
        if signer.public_key.keyid not in root.signed.roles["targets"].keyids:
            return []
        archive = self.pending_archive(pending)
        _check_proposed(pending.signed, self._next(archive, now), now, _TARGETS_DAYS)
        pending.sign(signer, append=True)
        version = pending.signed.version
        missing = _missing(root.signed, "targets", pending)
        if missing:
            write_public(self._pending / "targets.json", pending.to_bytes())
            return [f"signed bundle {version}: {missing} more must sign"]
        digest = pending.signed.targets[TARGET].hashes["sha256"]
        write_public(self._targets / f"{digest}.{TARGET}", archive)
        write_public(self._metadata / f"{version}.targets.json", pending.to_bytes())
        (self._pending / "targets.json").unlink()
        (self._pending / TARGET).unlink(missing_ok=True)
        return [f"published bundle {version}; the machine's key must sign the time now"]

    def _sign_time(
        self, root: Metadata[Root], signer: _Signer, now: datetime, hours: int
    ) -> list[str]:
        targets = self.published()
        if targets is None or _missing(root.signed, "targets", targets):
            return []
        before = _read(self._metadata / "timestamp.json", Timestamp)
        version = 1 if before is None else before.signed.version + 1
        number = 0 if before is None else before.signed.snapshot_meta.version
        expires = _until(now, hours=hours)
        signed = Metadata(
            Snapshot(
                version=number + 1,
                expires=expires,
                meta={"targets.json": _meta(targets.signed.version, self._path_of(targets))},
            )
        )
        signed.sign(signer)
        path = self._metadata / f"{number + 1}.snapshot.json"
        write_public(path, signed.to_bytes())
        time = Metadata(
            Timestamp(
                version=version,
                expires=expires,
                snapshot_meta=_meta(number + 1, path),
                unrecognized_fields={SIGNED_FIELD: now.isoformat()},
            )
        )
        time.sign(signer)
        write_public(self._metadata / "timestamp.json", time.to_bytes())
        for old in range(max(1, number - 2 * _KEPT_SNAPSHOTS), number + 2 - _KEPT_SNAPSHOTS):
            (self._metadata / f"{old}.snapshot.json").unlink(missing_ok=True)
        return [
            f"signed the time: bundle {targets.signed.version} holds until {shown_time(expires)}"
        ]

    def root(self) -> Metadata[Root] | None:
        """Return the last root that was published, or None if there is none."""
        return _read(self._last("root"), Root)

    def published(self) -> Metadata[Targets] | None:
        """Return the bundle that was published last, or None if there is none."""
        return _read(self._last("targets"), Targets)

    def time(self) -> Metadata[Timestamp] | None:
        """Return the time that was signed last, or None if none was."""
        return _read(self._metadata / "timestamp.json", Timestamp)

    def waiting(self) -> list[Waiting]:
        """Return what lacks signatures."""
        found: list[Waiting] = []
        before = self.root()
        root = _read(self._pending / "root.json", Root)
        if root is not None:
            found.append(_waiting(root.signed, "root", root, _missing_for_root(before, root)))
        targets = _read(self._pending / "targets.json", Targets)
        if before is not None and targets is not None:
            missing = _missing(before.signed, "targets", targets)
            found.append(_waiting(before.signed, "targets", targets, missing))
        return found

    def pending_archive(self, pending: Metadata[Targets] | None = None) -> bytes:
        """Return the archive that waits for signatures.

        Raises:
            BundleError: it is not the one that the metadata names, or a machine would refuse it.
        """
        pending = pending or _read(self._pending / "targets.json", Targets)
        if pending is None:
            return b""
        archive = (self._pending / TARGET).read_bytes()
        try:
            pending.signed.targets[TARGET].verify_length_and_hashes(archive)
        except (RepositoryError, KeyError) as error:
            raise BundleError(f"{self._pending / TARGET} was changed after it was made") from error
        unpack(archive)
        return archive

    def changes(self) -> Iterable[str]:
        """Yield the keys, then the files, in which what is proposed differs from the published."""
        yield from self._changed_keys()
        waiting, before = self.pending_archive(), self.published()
        if not waiting:
            return
        old: Mapping[str, bytes] = {}
        if before is not None:
            digest = before.signed.targets[TARGET].hashes["sha256"]
            old = unpack((self._targets / f"{digest}.{TARGET}").read_bytes())
        new = unpack(waiting)
        yield f"contents  {digest_of(new)}"
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                word = "added" if name not in old else "changed" if name in new else "removed"
                yield f"{word:<9} {name}"

    def _changed_keys(self) -> Iterator[str]:
        waiting, before = _read(self._pending / "root.json", Root), self.root()
        if waiting is None:
            return
        old, new = (set() if one is None else _named(one.signed) for one in (before, waiting))
        for one in sorted(old | new):
            word = "added" if one not in old else "kept" if one in new else "removed"
            yield f"{word:<9} {one[1]} for {one[0]}"

    def _need_root(self) -> None:
        if self.root() is None:
            why = "has no keys yet that two persons have signed: begin with --person and --machine"
            raise ConfigurationError(f"{self.directory} {why}")

    def _last(self, role: str) -> Path:
        found = [
            int(path.name.partition(".")[0])
            for path in self._metadata.glob(f"*.{role}.json")
            if path.name.partition(".")[0].isdecimal()
        ]
        return self._metadata / f"{max(found, default=0)}.{role}.json"

    def _path_of(self, targets: Metadata[Targets]) -> Path:
        return self._metadata / f"{targets.signed.version}.targets.json"

    def _make_directories(self) -> None:
        for path in (self._metadata, self._pending, self._targets):
            path.mkdir(parents=True, exist_ok=True)


def _read(path: Path, kind: type[S]) -> Metadata[S] | None:
    try:
        found = Metadata[S].from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except (DeserializationError, OSError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(found.signed, kind):
        raise ConfigurationError(f"{path} is of another kind")
    if isinstance(found.signed, Root):
        keys, roles = found.signed.keys, found.signed.roles.values()
        named = {keyid for role in roles for keyid in role.keyids}
        if not named <= keys.keys() or not all(map(_is_ours, keys.values())):
            raise ConfigurationError(f"{path} names what is no key of one person: propose it again")
    return found


def _until(now: datetime, *, days: int = 0, hours: int = 0) -> datetime:
    return (now + timedelta(days=days, hours=hours)).replace(microsecond=0)


def _meta(version: int, path: Path) -> MetaFile:
    return MetaFile.from_data(version, path.read_bytes(), ["sha256"])


def _named(root: Root) -> set[tuple[str, str]]:
    """Return each role with the keys that sign it."""
    return {
        (role, fingerprint(root.keys[keyid]))
        for role in (*_PERSONS, *_MACHINE)
        for keyid in root.roles[role].keyids
    }


def _needs_one(root: Root) -> bool:
    """Return whether one key is enough for what two persons must sign."""
    shared = {keyid: _public(key).shared for keyid, key in root.keys.items()}
    alone = {shared[keyid] for role in _MACHINE for keyid in root.roles[role].keyids}
    for role in _PERSONS:
        persons = {shared[keyid] for keyid in root.roles[role].keyids}
        # Of one key in two forms a signature would count twice.
        is_twice = len(persons) < len(root.roles[role].keyids)
        if is_twice or root.roles[role].threshold < 2 or alone & persons:  # noqa: PLR2004  two
            return True
    return False


def _check_proposed(said: S, ours: S, now: datetime, days: int) -> None:
    """Refuse what somebody else has put there. Only its keys and its archive are shown to people.

    Raises:
        BundleError: it holds longer than ours would, is not the next version, or says more.
    """
    ours.expires, ours.spec_version = said.expires, said.spec_version
    if said != ours or said.expires > _until(now, days=days + 1):
        raise BundleError(
            f"what waits ({said.type}) is not as `bundle sign` makes it: it holds for more than "
            f"{days} days, is not the next version, or says more; propose it again"
        )


def _missing(root: Root, role: str, metadata: Metadata[Targets]) -> int:
    result = root.get_verification_result(role, metadata.signed_bytes, metadata.signatures)
    return max(0, result.threshold - len(result.signed))


def _missing_for_root(before: Metadata[Root] | None, root: Metadata[Root]) -> int:
    found = root.signed.get_root_verification_result(
        None if before is None else before.signed, root.signed_bytes, root.signatures
    )
    return max([max(0, one.threshold - len(one.signed)) for one in (found.first, found.second)])


def _waiting(root: Root, role: str, metadata: Metadata[S], missing: int) -> Waiting:
    keys = [root.keys[keyid] for keyid in root.roles[role].keyids]
    return Waiting(
        role=role,
        version=metadata.signed.version,
        signed=tuple([fingerprint(key) for key in keys if _has_signed(key, metadata)]),
        missing=missing,
        keys=tuple([fingerprint(key) for key in keys]),
    )


def _has_signed(key: Key, metadata: Metadata[S]) -> bool:
    signature = metadata.signatures.get(key.keyid)
    if signature is None:
        return False
    try:
        key.verify_signature(signature, metadata.signed_bytes)
    except UnverifiedSignatureError:
        return False
    return True
