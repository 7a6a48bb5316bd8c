"""The administrator's layer: `/etc/ironcurtain/managed/`.

Its rules ask and deny whatever a user or a project allows, and `managed.json` names the settings
that a user may not switch off:

    {"keep": ["sandbox", "pins"]}

The path is fixed here, so that no variable, flag or file of the user leads elsewhere. The files
must belong to root, and nobody else may write them or put others in their place: a layer that the
agent's user can change would say nothing. A directory that exists and cannot be read or trusted
stops the start, because a restriction that cannot be read must not be taken for none.

A machine of a fleet is enrolled by `bundle.json` in this directory: then the bundle of the fleet is
part of the layer, as `bundle update` left it below the directory.

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
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, assert_never, get_args

from msgspec import Meta, Struct, ValidationError
from msgspec.json import decode

from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import LISTS_NAME, POLICY_NAME, SHORT_NAME
from ironcurtain_proxy.config.reading.document import DocumentNode, Report, shown
from ironcurtain_proxy.config.reading.forms import Document, NameText, fill
from ironcurtain_proxy.config.reading.reading import parse
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.signing import Quorum, folded
from ironcurtain_proxy.model.values import BootMoment, Json, lazy
from ironcurtain_proxy.steady_clock import seconds_left

# --- the bundle of the fleet

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
_NAME: Final = lazy(
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
FINGERPRINT: Final = r"SHA256:[A-Za-z0-9+/]{43}"
_GRANT: Final = lazy(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLOCK: Final = timedelta(minutes=5)
"""The most by which this machine's clock may differ from the repository's."""

_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Release = Annotated[str, Meta(pattern=r"^[0-9]{1,12}-[0-9a-f]{12}$")]


def is_fingerprint(text: str) -> bool:
    """Return whether a text is the fingerprint of a key."""
    return re.fullmatch(FINGERPRINT, text) is not None


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
    """Users of machines, and names of agents' tokens, none of whose calls go through, whatever the
    case of letters. `*`: all."""
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
        elif found := sorted({folded(one) for one in self.principals} & {*map(folded, names())}):
            who = f"The agents of {found[0]} are stopped"
        else:
            return ""
        return f"{who}: {self.reason}" if self.reason else f"{who} by its administrators"

    def idle(self) -> list[str]:
        """Return what takes nothing back on any machine: half an id, no fingerprint, no name."""
        idle = {one for one in self.keys if not is_fingerprint(one)}
        # `joe@*` and `web-*` are names that nobody has: only `*` alone stands for others.
        names = self.principals - {EVERYBODY}
        idle |= {one for one in names if EVERYBODY in one or not one or one != one.strip()}
        return sorted(idle | {one for one in self.grants if not _GRANT.fullmatch(one)})


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


# --- the administrator's layer

MANAGED: Final = Path("/etc/ironcurtain/managed")
KEEP_NAME: Final = "managed.json"
REVIEWERS_NAME: Final = "reviewers.json"
_NAMES: Final = (SHORT_NAME, POLICY_NAME, LISTS_NAME, KEEP_NAME, REVIEWERS_NAME)
_ADMINISTRATOR: Final = 0
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_LARGEST: Final = 128 * 1024

Kept: TypeAlias = Literal["sandbox", "containment", "pins", "redaction", "approvals", "hooks"]
"""A setting that a user may not switch off."""
KEPT: Final[tuple[Kept, ...]] = get_args(Kept)


class ManagedForm(Document, frozen=True, kw_only=True):
    """What an administrator keeps."""

    keep: tuple[Kept, ...]
    """Settings that a user may not switch off."""


class ManagedFiles(Struct, frozen=True, kw_only=True):
    """The files of the administrator's layer, and what they keep."""

    directory: Path
    short: Path | None = None
    policy: Path | None = None
    lists: Path | None = None
    reviewers: Path | None = None
    """The persons who may approve, in place of those that the user names."""
    kept: frozenset[Kept] = frozenset()
    data: bytes = b""
    """The bytes of `managed.json`, for the version of the policy."""
    bundle: Bundle | None = None
    """The fleet's bundle, or None if this machine is not enrolled."""

    @property
    def revoked_keys(self) -> frozenset[str]:
        """The reviewers' keys that the fleet has revoked."""
        return frozenset() if self.bundle is None else self.bundle.revoked.keys


def find_managed(
    report: Report, directory: Path = MANAGED, owner: int = _ADMINISTRATOR
) -> ManagedFiles | None:
    """Return the administrator's layer, or None if this machine has none.

    Args:
        report: gets each reason why a file cannot be trusted or read.
        directory: of the layer; tests give another one.
        owner: the user that must own it and its files.
    """
    try:
        if not _is_trusted(directory, owner, report):
            return ManagedFiles(directory=directory)
        there = {name for name in _NAMES if _is_there(directory / name)}
        untrusted = [one for one in there if not _is_trusted(directory / one, owner, report)]
    except FileNotFoundError:
        return None
    except OSError as error:
        report.error(str(directory), (), f"cannot be read: {error.strerror}")
        return ManagedFiles(directory=directory)
    if untrusted:
        return ManagedFiles(directory=directory)
    bundle = None
    if is_enrolled(directory):
        trusts = partial(_is_trusted, owner=owner)
        bundle = read_bundle(directory, lambda path, into: trusts(path, report=into), report)
    data = _content(directory / KEEP_NAME, report) if KEEP_NAME in there else b""
    kept = frozenset(_kept(directory / KEEP_NAME, data, report)) if data else frozenset()
    also, reviewers = None, None
    if bundle is not None:
        also, reviewers = bundle.file(KEEP_NAME), bundle.file(REVIEWERS_NAME)
    if also is not None:
        kept |= frozenset(_kept(also, _content(also, report), report))
    return ManagedFiles(
        directory=directory,
        short=directory / SHORT_NAME if SHORT_NAME in there else None,
        policy=directory / POLICY_NAME if POLICY_NAME in there else None,
        lists=directory / LISTS_NAME if LISTS_NAME in there else None,
        reviewers=directory / REVIEWERS_NAME if REVIEWERS_NAME in there else reviewers,
        kept=kept,
        data=data,
        bundle=bundle,
    )


def managed_paths(directory: Path = MANAGED) -> tuple[Path, ...]:
    """Return every path where a file of the layer counts, once there is one."""
    # A release never changes: only which one is in force does.
    names = (*_NAMES, ENROLMENT_NAME, f"{BUNDLE_NAME}/{CURRENT_NAME}")
    return tuple([directory / name for name in names])


def check_kept(settings: Settings, managed: ManagedFiles, report: Report) -> None:
    """Report each setting that the administrator keeps and this configuration switches off."""
    for kept in sorted(managed.kept):
        for place, remedy in _switched_off(settings, kept):
            source = str(settings.config_file or "the configuration")
            message = f"{managed.directory / KEEP_NAME} does not let {place} be switched off here"
            report.error(source, (), f"{message}: {remedy}")


def _switched_off(settings: Settings, kept: Kept) -> Iterator[tuple[str, str]]:
    """Yield each place where a kept setting is switched off, and what to do."""
    match kept:
        case "sandbox":
            yield from _sandboxes(settings)
        case "containment" if not settings.containment.undo:
            yield "containment", 'set "containment": {"undo": true}'
        case "pins":
            yield from _pins(settings)
        case "redaction" if not settings.audit.redact:
            yield "redaction of the audit log", 'set "auditRedaction": {"enabled": true}'
        case "approvals":
            yield from _approvals(settings)
        case "containment" | "redaction" | "hooks":
            # Hooks stand in clients' files: what looks after them keeps them.
            pass
        case _:
            assert_never(kept)


def _sandboxes(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.sandbox_policy != "enforce":
        yield "the sandbox", 'set "sandboxPolicy": "enforce"'
    for one in settings.servers:
        if one.sandbox is False and one.remote is None:
            yield f"the sandbox of {shown(one.name)}", 'remove "sandbox": false'


def _approvals(settings: Settings) -> Iterator[tuple[str, str]]:
    interceptor = settings.overlay.interceptor
    if not interceptor.enabled or interceptor.mode == "none":
        yield "the approval policy", 'set security.interceptor.approvalPolicy to "dangerous"'


def _pins(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.pins != "on":
        yield "pins", 'set "pins": "on"'
    for one in settings.servers:
        if one.pins not in {None, "on"}:
            yield f"the pins of {shown(one.name)}", f'remove "pins": "{one.pins}"'


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _is_trusted(path: Path, owner: int, report: Report) -> bool:
    """Return whether a path, and each directory above it, is the owner's alone.

    Raises:
        OSError: the path does not exist, or cannot be looked at.
    """
    own = path.lstat()
    above = [one.stat() for one in path.parents] if stat.S_ISDIR(own.st_mode) else []
    if not (stat.S_ISDIR(own.st_mode) or stat.S_ISREG(own.st_mode)):
        report.error(str(path), (), "is neither a file nor a directory, and no link counts here")
        return False
    for one in (own, *above):
        # A directory such as /tmp, where anybody makes files and the sticky bit protects them.
        is_sticky = stat.S_ISDIR(one.st_mode) and one.st_mode & stat.S_ISVTX
        if one.st_uid not in {owner, _ADMINISTRATOR} or (
            one.st_mode & _WRITABLE_BY_OTHERS and not is_sticky
        ):
            message = "can be changed by others than its administrator: let it and the directories"
            report.error(str(path), (), f"{message} above it belong to root, writable by root only")
            return False
    return True


def _content(path: Path, report: Report) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        report.error(str(path), (), f"cannot be read: {os.strerror(error.errno or 0)}")
        return b""
    if len(data) > _LARGEST:
        report.error(str(path), (), f"is larger than {_LARGEST // 1024} KiB")
        return b""
    return data


def _kept(path: Path, data: bytes, report: Report) -> tuple[Kept, ...]:
    before = len(report.problems)
    value = parse(data, path, report)
    if len(report.problems) != before:
        return ()
    return fill(DocumentNode(value, str(path), report), ManagedForm).keep
