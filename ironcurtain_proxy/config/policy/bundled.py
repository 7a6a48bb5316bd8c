"""The bundle of the fleet, as `bundle update` left it below the administrator's directory.

    bundle.json              this machine is enrolled: {"source": "https://…/"}
    bundle-root.json         the root of trust, which an administrator put there
    bundle/current.json      which release is in force, its SHA-256, and until when
    bundle/releases/7-5d41…/ the files of the release

This module imports no library of the update. It compares the files with the digest that the update
has written down, and says what holds where they are older than their signatures allow: everything
that was allowed is asked about, and what was denied stays denied.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct, ValidationError
from msgspec.json import decode

from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import LISTS_NAME, POLICY_NAME
from ironcurtain_proxy.config.policy.short_form import SHORT_NAME
from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import Document, NameText, fill
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import parse
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import BootMoment, Json
from ironcurtain_proxy.steady_clock import seconds_left

ENROLMENT_NAME: Final = "bundle.json"
TRUST_NAME: Final = "bundle-root.json"
BUNDLE_NAME: Final = "bundle"
CURRENT_NAME: Final = "current.json"
ATTEMPT_NAME: Final = "attempt.json"
RELEASES_NAME: Final = "releases"

MAXIMUM_NAME: Final = "maximum.yaml"
REVOKED_NAME: Final = "revoked.json"
_LAYER_NAMES: Final = (
    *(SHORT_NAME, POLICY_NAME, LISTS_NAME, ANNOTATIONS_NAME),
    *(MAXIMUM_NAME, REVOKED_NAME, "reviewers.json", "managed.json"),
)
_FOLDERS: Final[Mapping[str, str]] = {"packs": r"[a-z0-9-]{1,64}\.json", "pins": r"\w{1,80}\.json"}
_NAME: Final = re.compile(
    "|".join(
        [
            *[re.escape(name) for name in _LAYER_NAMES],
            *[f"{folder}/{name}" for folder, name in _FOLDERS.items()],
        ]
    ),
    re.ASCII,
)
MOST_FILES: Final = 1000
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of all files of a bundle."""
_LARGEST_NOTE: Final = 64 * 1024
EVERYBODY: Final = "*"
CLOCK: Final = timedelta(minutes=5)
"""The most by which this machine's clock may differ from the repository's."""

_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Release = Annotated[str, Meta(pattern=r"^[0-9]{1,12}-[0-9a-f]{12}$")]


def is_bundled(name: str) -> bool:
    """Return whether a bundle may hold a file of this name, such as `packs/git.json`."""
    return _NAME.fullmatch(name) is not None


class EnrolmentForm(Document, frozen=True, kw_only=True):
    """How a machine gets its bundles."""

    source: NameText
    """The address of the repository: `https://…/` or `file:///…/`."""


class RevokedForm(Document, frozen=True, kw_only=True):
    """What does not count any more."""

    grants: frozenset[str] = frozenset()
    """Ids of remembered approvals."""
    keys: frozenset[str] = frozenset()
    """Fingerprints of reviewers' keys."""
    principals: frozenset[str] = frozenset()
    """Users of machines, and names of agents' tokens, none of whose calls go through. `*`: all."""
    reason: str = ""
    """Why, for agents and reviewers."""

    def stopped(self, names: Callable[[], Iterable[str]]) -> str:
        """Return why the calls of a principal are denied, or nothing if they are not.

        Args:
            names: asked for the principal's names where that matters.
        """
        if not self.principals:
            return ""
        if EVERYBODY in self.principals:
            who = "All agents of the fleet are stopped"
        elif found := sorted(self.principals.intersection(names())):
            who = f"The agents of {found[0]} are stopped"
        else:
            return ""
        return f"{who}: {self.reason}" if self.reason else f"{who} by its administrators"


class Current(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `current.json`."""

    version: int
    release: _Release
    sha256: _Digest
    signed: datetime
    """When the repository's time was signed that this machine saw last."""
    expires: datetime
    updated: datetime
    """When this machine took the release over."""
    ends: BootMoment | None = None
    """`expires` by the count of the boot in which the update ran, when the clock was right."""

    def has_ended(self, now: datetime) -> bool:
        """Return whether the bundle does not hold any more.

        Until the next boot no change of the machine's clock moves that. Then the clock is all there
        is: one that is before the signature is wrong, and nobody can say how long the bundle holds.
        """
        left = None if self.ends is None else seconds_left(self.ends)
        if left is not None:
            return left <= 0
        return now >= self.expires or self.signed - now > CLOCK


class Bundle(Struct, frozen=True, kw_only=True):
    """A bundle in force, and its files."""

    current: Current
    expired: bool
    directory: Path
    names: frozenset[str]
    revoked: RevokedForm
    stopped: str = ""
    """Why every call is denied, or empty if this principal is not stopped."""

    def file(self, name: str) -> Path | None:
        """Return a file of the bundle, or None if it has none of this name."""
        return self.directory / name if name in self.names else None

    def annotations(self) -> tuple[Path, ...]:
        """Return the packs, then the annotations, of which the last that names a tool counts."""
        packs = sorted([name for name in self.names if name.startswith("packs/")])
        own = [name for name in (ANNOTATIONS_NAME,) if name in self.names]
        return tuple([self.directory / name for name in (*packs, *own)])

    @property
    def data(self) -> bytes:
        """What the version of the policy has of the bundle besides its files of rules."""
        return f"{self.current.sha256} {self.expired} {self.stopped}".encode()

    def rules(self) -> Iterator[Rule]:
        """Yield the rules that stand above all others, because of the time or a revocation."""
        if self.stopped:
            yield Rule(
                name="stopped", effect="deny", reason=self.stopped, layer="managed", everywhere=True
            )
        if self.expired:
            begin, end = shown_time(self.current.signed), shown_time(self.current.expires)
            yield Rule(
                name="bundle-expired",
                effect="escalate",
                reason=f"The fleet's policy holds from {begin} until {end}, and no newer one came",
                layer="managed",
                everywhere=True,
                contained=False,
                quorum=Quorum(0),
            )


def shown_time(moment: datetime) -> str:
    """Return a time for people: `2026-11-28 16:40 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def is_enrolled(directory: Path) -> bool:
    """Return whether an administrator's directory asks for a bundle."""
    return os.path.lexists(directory / ENROLMENT_NAME)


def read_bundle(
    directory: Path, is_trusted: Callable[[Path, Report], bool], report: Report
) -> Bundle | None:
    """Return the bundle in force, or None with the reason in the report.

    A machine that is enrolled and has no bundle that can be trusted does not start.

    Args:
        directory: the administrator's.
        is_trusted: whether a path is the administrator's alone; reports if it is not.
        report: gets each reason.
    """
    base = directory / BUNDLE_NAME
    try:
        paths = (directory / ENROLMENT_NAME, base, base / CURRENT_NAME, base / RELEASES_NAME)
        if any(not is_trusted(one, report) for one in paths):
            return None
        current = read_current(directory)
        release = base / RELEASES_NAME / current.release
        if not is_trusted(release, report):
            return None
        files = dict(read_release(release, lambda path: is_trusted(path, report)))
    except FileNotFoundError as error:
        path = error.filename or base
        message = "is missing, and this machine is enrolled for a bundle: run `ironcurtain-proxy "
        report.error(str(path), (), message + "bundle update` as root")
        return None
    except (OSError, ValueError) as error:
        report.error(
            str(base), (), f"cannot be read: {error}; run `ironcurtain-proxy bundle update`"
        )
        return None
    if digest_of(files) != current.sha256:
        message = "is not as `bundle update` left it: run `ironcurtain-proxy bundle update` as root"
        report.error(str(release), (), message)
        return None
    revoked = RevokedForm()
    if REVOKED_NAME in files:
        source = release / REVOKED_NAME
        value = parse(files[REVOKED_NAME], source, report)
        revoked = fill(DocumentNode(value, str(source), report), RevokedForm)
    return Bundle(
        current=current,
        # Files are judged at the moment at which they are read.
        expired=current.has_ended(datetime.now(UTC)),  # noqa: TID251  as said
        directory=release,
        names=frozenset(files),
        revoked=revoked,
    )


def read_current(directory: Path) -> Current:
    """Return which release is in force.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is damaged.
    """
    path = directory / BUNDLE_NAME / CURRENT_NAME
    with path.open("rb") as file:
        raw = file.read(_LARGEST_NOTE)
    try:
        found = decode(raw, type=Current)
    except (ValidationError, ValueError):
        raise ValueError(f"{path} is damaged") from None
    if any(one.tzinfo is None for one in (found.signed, found.expires, found.updated)):
        raise ValueError(f"{path} is damaged")
    return found


def read_release(
    release: Path, is_trusted: Callable[[Path], bool] = lambda _: True
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a directory that has the form of a bundle, by name.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds anything that no bundle has, or too much.
    """
    left, count = MOST_BYTES, 0
    for name in sorted(_names(release)):
        path = release / name
        if not is_bundled(name):
            raise ValueError(f"{path} has no place in a bundle")
        if not stat.S_ISREG(path.lstat().st_mode) or not is_trusted(path):
            raise ValueError(f"{path} is no regular file of the administrator's")
        with path.open("rb") as file:
            data = file.read(left + 1)
        left, count = left - len(data), count + 1
        if left < 0 or count > MOST_FILES:
            limit = f"{MOST_FILES} files and {MOST_BYTES >> 20} MiB"
            raise ValueError(f"{release} is larger than {limit}")
        yield name, data


def _names(release: Path) -> Iterator[str]:
    with os.scandir(release) as entries:
        for one in entries:
            if one.name in _FOLDERS and one.is_dir(follow_symlinks=False):
                with os.scandir(one) as inner:
                    yield from [f"{one.name}/{file.name}" for file in inner]
            else:
                yield one.name


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the names and contents of all files, in hexadecimal."""
    digest = sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


class Attempt(Struct, frozen=True, kw_only=True):
    """The content of `attempt.json`: the last update, if it failed."""

    at: datetime
    problem: str


def last_attempt(bundle: Bundle) -> Attempt | None:
    """Return the last update, or None if it succeeded, or nothing is known of one that failed."""
    try:
        return decode((bundle.directory.parents[1] / ATTEMPT_NAME).read_bytes(), type=Attempt)
    except (OSError, ValueError):
        return None


def bundle_fields(bundle: Bundle) -> dict[str, Json]:
    """Return what programs are told of the bundle."""
    current, attempt = bundle.current, last_attempt(bundle)
    return {
        "version": current.version,
        "sha256": current.sha256,
        "signed": current.signed.isoformat(),
        "expires": current.expires.isoformat(),
        "expired": bundle.expired,
        "updated": current.updated.isoformat(),
        "stopped": bundle.stopped,
        "lastFailure": None if attempt is None else f"{attempt.at.isoformat()} {attempt.problem}",
    }


def bundle_lines(bundle: Bundle, now: datetime) -> Iterator[str]:
    """Yield what people are told of the bundle: its version and age, then what is wrong."""
    current = bundle.current
    hours = (now - current.signed).total_seconds() / 3600
    yield (
        f"version {current.version}, its time signed {hours:.1f} hours ago, "
        f"to hold until {shown_time(current.expires)}"
    )
    if bundle.expired:
        since = shown_time(current.signed)
        late = f"has expired, frozen since {since}"
        early = f"was signed at {since}, which this machine's clock has yet to reach"
        yield f"the bundle {late if now > current.signed else early}: all that is allowed is asked"
    if bundle.stopped:
        yield f"every call is denied: {bundle.stopped}"
    attempt = last_attempt(bundle)
    if attempt is not None:
        yield f"the last update failed, {shown_time(attempt.at)}: {attempt.problem}"
