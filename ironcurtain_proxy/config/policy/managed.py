"""The administrator's layer: `/etc/ironcurtain/managed/`.

Its rules ask and deny whatever a user or a project allows, and `managed.json` names the settings
that a user may not switch off:

    {"keep": ["sandbox", "pins"]}

The path is fixed here, so that no variable, flag or file of the user leads elsewhere. The files
must belong to root, and nobody else may write them or put others in their place: a layer that the
agent's user can change would say nothing. A directory that exists and cannot be read or trusted
stops the start, because a restriction that cannot be read must not be taken for none.

A machine of a fleet is enrolled by `bundle.json` in this directory: then its signed bundle is part
of the layer (see `bundled`).
"""

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never, get_args

from msgspec import Struct

from ironcurtain_proxy.config.policy.bundled import (
    BUNDLE_NAME,
    CURRENT_NAME,
    ENROLMENT_NAME,
    Bundle,
    is_enrolled,
    read_bundle,
)
from ironcurtain_proxy.config.policy.policy_file import LISTS_NAME, POLICY_NAME
from ironcurtain_proxy.config.policy.short_form import SHORT_NAME
from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import Document, fill
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import parse
from ironcurtain_proxy.config.settings import Settings

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
