"""The change to a newer bundle on one machine: fetched, checked, unpacked, and put in force.

Theory of operation. Everything happens below `/etc/ironcurtain/managed/bundle`, under a lock:

    metadata/           what the repository said last, kept by the library of TUF
    releases/.new       where an archive is unpacked; renamed once it is whole and on the disk
    releases/7-5d41…    a release
    current.json        the release in force: replaced last, in one step

Whatever fails or ends before the last step leaves the last good release in force. Nothing is taken
from the repository that the signatures do not cover: not its names, its order, or its time.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
from msgspec import Struct
from msgspec.json import encode
from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, TargetFile, Targets, Timestamp
from tuf.api.serialization import DeserializationError
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from ironcurtain_proxy.bundle.contents import (
    MOST_ARCHIVE,
    PUBLIC_DIRECTORY,
    BundleError,
    check_release,
    pack,
    unpack,
    write_public,
    write_release,
)
from ironcurtain_proxy.bundle.repository import SIGNED_FIELD, TARGET
from ironcurtain_proxy.config.policy.managed import (
    ATTEMPT_NAME,
    BUNDLE_NAME,
    CLOCK,
    CURRENT_NAME,
    ENROLMENT_NAME,
    RELEASES_NAME,
    TRUST_NAME,
    Attempt,
    Current,
    EnrolmentForm,
    digest_of,
    read_current,
    read_release,
    shown_time,
)
from ironcurtain_proxy.config.reading.document import strictly
from ironcurtain_proxy.config.reading.forms import read_form
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import BootMoment
from ironcurtain_proxy.private_files import held_lock, opened, sync_directory
from ironcurtain_proxy.steady_clock import (
    boot_id,
    interrupted_after,
    seconds_left,
    seconds_since_boot,
)

_SECONDS: Final = 20.0
"""For a connection, and for each piece of an answer."""
_ALL_SECONDS: Final = 300.0
"""For all metadata, and for the archive."""
_MOST_REDIRECTS: Final = 4
_PIECE: Final = 1 << 16
_HTTP_ERROR: Final = 400
_NOT_FOUND: Final = 404
_DIGITS: Final = 12
_MOST_VERSION: Final = 10**12 - 1
"""The greatest that `current.json` may name."""


_REFUSALS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (
        exceptions.ExpiredMetadataError,
        "the repository shows an old state: it is frozen, or this machine's clock is ahead",
    ),
    (
        exceptions.BadVersionNumberError,
        "it is older than what this machine has seen, or mixes versions: a rollback is refused",
    ),
    (exceptions.UnsignedMetadataError, "too few of the keys that count have signed it"),
    (exceptions.LengthOrHashMismatchError, "a file is not the one that was signed"),
    (
        exceptions.DownloadLengthMismatchError,
        "a file is longer than what was signed, or than any such file may be",
    ),
    (exceptions.SlowRetrievalError, "the repository sends too slowly"),
    (exceptions.DownloadError, "the repository cannot be reached"),
    (Exception, "the repository's metadata cannot be used"),
)
"""What each error of the library looks like, the first that fits."""


class Updated(Struct, frozen=True, kw_only=True):
    """The result of an update."""

    current: Current
    is_new: bool
    """Whether another release took effect."""


class _ClockError(BundleError):
    """This machine's clock, or the repository's, is wrong."""


class _Fetcher(FetcherInterface):
    """Fetches files of a repository over `https:`, or from a directory."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._pool = urllib3.PoolManager(
            retries=urllib3.Retry(2, allowed_methods=("GET",)), timeout=urllib3.Timeout(_SECONDS)
        )

    def _fetch(self, url: str) -> Iterator[bytes]:
        parts = urlsplit(url)
        if parts.scheme != "file":
            return _downloaded(self._over_https(url).stream(_PIECE))
        try:
            # The library of TUF reads no more than it allows.
            return _downloaded(_pieces(opened(Path(unquote(parts.path)))))
        except FileNotFoundError as error:
            raise exceptions.DownloadHTTPError(f"{url} is not there", _NOT_FOUND) from error

    def _over_https(self, url: str) -> urllib3.BaseHTTPResponse:
        for _ in range(_MOST_REDIRECTS):
            answer = self._pool.request("GET", url, preload_content=False, redirect=False)
            if not (place := answer.get_redirect_location()):
                break
            answer.close()
            url = urljoin(url, place)
            if urlsplit(url).scheme != "https":
                raise exceptions.DownloadError(f"it leads to {url}, which is not https")
        else:
            raise exceptions.DownloadError(f"it leads to other places {_MOST_REDIRECTS} times")
        self._look_at_clock(answer.headers.get("Date", ""))
        if answer.status >= _HTTP_ERROR:
            answer.close()
            raise exceptions.DownloadHTTPError(f"status {answer.status}", answer.status)
        return answer

    def _look_at_clock(self, date: str) -> None:
        with suppress(ValueError, TypeError):
            theirs = parsedate_to_datetime(date)
            if theirs.tzinfo is not None and abs(self._now - theirs) > CLOCK:
                raise exceptions.DownloadError from _ClockError(_wrong_clock(self._now, theirs))


def _downloaded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise exceptions.DownloadError(str(error)) from error


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def update(managed: Path, now: datetime) -> Updated:
    """Fetch the newest bundle and put it in force.

    Args:
        managed: the administrator's directory.
        now: aware, UTC.

    Raises:
        ConfigurationError: this machine is not enrolled, or its enrolment cannot be used.
        BundleError: what the repository offers is refused, or it cannot be reached.
    """
    source, root = _enrolment(managed)
    base, busy = managed / BUNDLE_NAME, BundleError("another update is running")
    try:
        for path in (base, base / RELEASES_NAME, base / "metadata"):
            path.mkdir(exist_ok=True)
            path.chmod(PUBLIC_DIRECTORY)
        with held_lock(base / "update.lock", 1.0, busy):
            outcome = _update(base, managed, source, root, now)
            (base / ATTEMPT_NAME).unlink(missing_ok=True)
            return outcome
    except OSError as error:
        problem = f"{error.filename or base}: {error.strerror or error}"
        raise _noted(base, BundleError(f"the update cannot be written: {problem}"), now) from error
    except BundleError as error:
        if error is not busy:
            _noted(base, error, now)
        raise


def _noted(base: Path, error: BundleError, now: datetime) -> BundleError:
    """Write down why an update failed, for `status` and `doctor`."""
    with suppress(OSError):
        write_public(base / ATTEMPT_NAME, encode(Attempt(at=now, problem=str(error))))
    return error


def _enrolment(managed: Path) -> tuple[str, bytes]:
    """Return the address of the repository, and the root that this machine trusts."""
    path = managed / ENROLMENT_NAME
    if not path.exists():
        raise ConfigurationError(
            f"this machine is not enrolled: write {path}, such as "
            f'{{"source": "https://policy.example.com/"}}, and the root beside it as {TRUST_NAME}'
        )
    read = strictly(lambda report: read_form(path, EnrolmentForm, report))
    source = "" if read is None else read[1].source
    parts = urlsplit(source)
    if parts.scheme not in {"https", "file"} or (parts.scheme == "file" and parts.netloc):
        raise ConfigurationError(f"{path}: source must begin with https:// or file:///")
    try:
        root = (managed / TRUST_NAME).read_bytes()
        Metadata[Root].from_bytes(root)
    except (OSError, DeserializationError) as error:
        why = f"{managed / TRUST_NAME} must be the root.json that two persons signed: {error}"
        raise ConfigurationError(why) from error
    return source if source.endswith("/") else f"{source}/", root


def _update(base: Path, managed: Path, source: str, root: bytes, now: datetime) -> Updated:
    releases = base / RELEASES_NAME
    shutil.rmtree(releases / ".new", ignore_errors=True)
    before = _before(managed)
    updater = _updater(base, source, root, now)
    archive = base / ".bundle.tar"
    try:
        with interrupted_after(_ALL_SECONDS, exceptions.SlowRetrievalError):
            targets, expires, signed = _refreshed(updater, base, now)
        if before is not None and targets.version < before.version:
            raise BundleError(
                f"the repository offers bundle {targets.version}, and this machine has "
                f"{before.version}: a rollback is refused"
            )
        info = updater.get_targetinfo(TARGET)
        if info is None or info.length > MOST_ARCHIVE or targets.version > _MOST_VERSION:
            raise BundleError("the bundle has no archive, or one too large, or no such version")
        files = None if before is None else _known(releases / before.release, info)
        if files is None:
            with interrupted_after(_ALL_SECONDS, exceptions.SlowRetrievalError):
                updater.download_target(info, str(archive))
            files = unpack(archive.read_bytes())
    except (exceptions.RepositoryError, exceptions.DownloadError, ValueError) as error:
        raise _refused(error) from error
    finally:
        archive.unlink(missing_ok=True)
    digest = digest_of(files)
    release = f"{targets.version}-{digest[:_DIGITS]}"
    _put_in_place(releases, release, files)
    is_new = before is None or before.sha256 != digest or before.version != targets.version
    current = Current(
        version=targets.version,
        release=release,
        sha256=digest,
        signed=signed,
        expires=expires,
        updated=now if before is None or is_new else before.updated,
        ends=_end(before, signed, expires, now),
    )
    write_public(base / CURRENT_NAME, encode(current))
    _clear_away(releases, {release, "" if before is None else before.release})
    return Updated(current=current, is_new=is_new)


def _before(managed: Path) -> Current | None:
    with suppress(OSError, ValueError):
        return read_current(managed)
    return None


def _updater(base: Path, source: str, root: bytes, now: datetime) -> Updater:
    try:
        return Updater(
            metadata_dir=str(base / "metadata"),
            metadata_base_url=f"{source}metadata/",
            target_base_url=f"{source}targets/",
            fetcher=_Fetcher(now),
            config=UpdaterConfig(max_delegations=0),
            bootstrap=root,
        )
    except exceptions.RepositoryError as error:
        raise _refused(error) from error


def _refreshed(updater: Updater, base: Path, now: datetime) -> tuple[Targets, datetime, datetime]:
    """Return the newest targets, until when all of it holds, and when its time was signed."""
    updater.refresh()
    found = base / "metadata"
    root = Metadata[Root].from_file(str(found / "root.json")).signed
    stamp = Metadata[Timestamp].from_file(str(found / "timestamp.json")).signed
    targets = Metadata[Targets].from_file(str(found / "targets.json")).signed
    signed = _moment(stamp)
    if signed - now > CLOCK:
        raise _ClockError(_wrong_clock(now, signed))
    return targets, min(root.expires, stamp.expires, targets.expires), signed


def _moment(stamp: Timestamp) -> datetime:
    try:
        found = datetime.fromisoformat(str(stamp.unrecognized_fields.get(SIGNED_FIELD)))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # a moment before or after the calendar of UTC
        return stamp.expires - timedelta(days=1)


def _wrong_clock(ours: datetime, theirs: datetime) -> str:
    minutes = abs(ours - theirs).total_seconds() / 60
    way = "ahead of" if ours > theirs else "behind"
    return (
        f"this machine's clock is {minutes:.0f} minutes {way} the repository's "
        f"({shown_time(ours)} here, {shown_time(theirs)} there): set it, for example by timedatectl"
    )


def _end(before: Current | None, signed: datetime, expires: datetime, now: datetime) -> BootMoment:
    """Return when a bundle ends, by the count of this boot.

    The same signatures end when they ended before: the clock may have been set back since.
    """
    is_same = before is not None and (before.signed, before.expires) == (signed, expires)
    ends = before.ends if before is not None and is_same else None
    if ends is not None and seconds_left(ends) is not None:
        return ends
    return BootMoment(boot_id(), seconds_since_boot() + (expires - now).total_seconds())


def _known(release: Path, info: TargetFile) -> Mapping[str, bytes] | None:
    """Return the files of a release if they are those of the archive that was signed.

    By their hash: persons who each work on a copy may have signed two bundles of one version.
    """
    try:
        files = dict(read_release(release))
        info.verify_length_and_hashes(pack(files))
    except (OSError, ValueError, exceptions.LengthOrHashMismatchError):
        return None
    return files


def _put_in_place(releases: Path, release: str, files: Mapping[str, bytes]) -> None:
    new, path = releases / ".new", releases / release
    write_release(new, files)
    problems = check_release(new)
    if problems:
        shutil.rmtree(new)
        why = str(problems[0]).replace(f"{new}/", "")
        raise BundleError(f"a file of the bundle cannot be used by this version: {why}")
    if path.exists():
        # Of another attempt, or changed since.
        if dict(_files_of(path)) == files:
            shutil.rmtree(new)
            return
        path.rename(releases / f".old-{time.monotonic_ns()}")
    new.rename(path)
    sync_directory(releases)


def _files_of(path: Path) -> Iterator[tuple[str, bytes]]:
    with suppress(OSError, ValueError):
        yield from read_release(path)


def _clear_away(releases: Path, kept: set[str]) -> None:
    """Remove the releases that no running proxy is about to read."""
    with suppress(OSError):
        for path in releases.iterdir():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)


def _refused(error: Exception) -> BundleError:
    """Return the refusal in words: which attack or fault it looks like."""
    if isinstance(error.__cause__, _ClockError):
        return error.__cause__
    what = next(words for kind, words in _REFUSALS if isinstance(error, kind))
    cause = error.__cause__ or error
    return BundleError(f"no update: {what} ({' '.join(str(cause).split())[:300]})")
