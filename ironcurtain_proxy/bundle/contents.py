"""The files of a bundle: into one archive, out of it, and checked as `serve` would read them.

An archive is a plain tar without links, directories, owners or times, so that the same files give
the same bytes. Nothing is unpacked by the library: names come from a fixed list, which has no `..`
and no absolute path, only regular files count, and each file is made anew in a new directory.
"""

import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME, read_annotations_file
from ironcurtain_proxy.config.policy.managed import (
    KEEP_NAME,
    MAXIMUM_NAME,
    MOST_BYTES,
    MOST_FILES,
    REVIEWERS_NAME,
    REVOKED_NAME,
    ManagedForm,
    RevokedForm,
    is_bundled,
    read_release,
)
from ironcurtain_proxy.config.policy.policy_file import (
    LISTS_NAME,
    POLICY_NAME,
    SHORT_NAME,
    PolicyReader,
    read_lists_file,
)
from ironcurtain_proxy.config.policy.reviewers_file import read_reviewers
from ironcurtain_proxy.config.policy.short_form import ShortReader
from ironcurtain_proxy.config.reading.document import Problem, Report
from ironcurtain_proxy.config.reading.forms import read_form
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.private_files import sync_directory

MOST_ARCHIVE: Final = MOST_BYTES + MOST_FILES * 2048
"""Bytes of an archive with its headers."""
PUBLIC: Final = 0o644
PUBLIC_DIRECTORY: Final = 0o755


class BundleError(IronCurtainError):
    """A bundle that is refused. What was in force stays in force."""


def read_directory(directory: Path) -> Mapping[str, bytes]:
    """Return the files that somebody wants to sign.

    Raises:
        ConfigurationError: a file has no place in a bundle, or cannot be read.
    """
    try:
        found = dict(read_release(directory))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no bundle can be made: {error}") from error
    if not found:
        raise ConfigurationError(f"{directory} has no file of a bundle, such as {MAXIMUM_NAME}")
    return found


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), PUBLIC
            archive.addfile(member, io.BytesIO(files[name]))
    return written.getvalue()


def unpack(archive: bytes) -> Mapping[str, bytes]:
    """Return the files of an archive, by name.

    Raises:
        BundleError: it holds anything but known files, each once.
    """
    files: dict[str, bytes] = {}
    left = MOST_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for member in opened:
                shown = ascii(member.name[:80])
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise BundleError(f"the archive is refused: {shown} is no regular file")
                if not is_bundled(member.name) or member.name in files:
                    why = "stands there twice" if member.name in files else "has no place in it"
                    raise BundleError(f"the archive is refused: {shown} {why}")
                content = opened.extractfile(member)
                left -= member.size
                if left < 0 or len(files) >= MOST_FILES or content is None:
                    raise BundleError("the archive is refused: it is too large")
                files[member.name] = content.read()
                if len(files[member.name]) != member.size:
                    raise BundleError(f"the archive is refused: {shown} ends early")
    except (tarfile.TarError, ValueError, EOFError, RecursionError, OverflowError) as error:
        raise BundleError(f"the archive is refused: {error}") from error
    if not files:
        raise BundleError("the archive is refused: it is empty")
    return files


def write_release(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a new directory, and onto the disk.

    Raises:
        OSError: the directory is there, or the disk is full.
    """
    directory.mkdir()
    directory.chmod(PUBLIC_DIRECTORY)
    folders = {directory}
    for name, data in files.items():
        path = directory / name
        if path.parent not in folders:
            path.parent.mkdir()
            path.parent.chmod(PUBLIC_DIRECTORY)
            folders.add(path.parent)
        _write_new(path, data)
    for folder in sorted(folders, reverse=True):
        sync_directory(folder)


def write_public(path: Path, data: bytes) -> None:
    """Write a file that everybody may read, in one step, over what may be there.

    Raises:
        OSError: it could not be written; what was there is as it was.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        _write_new(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _write_new(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, PUBLIC), "wb") as file:
        os.fchmod(file.fileno(), PUBLIC)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def check_release(directory: Path) -> list[Problem]:
    """Return the errors that a machine would find in the files of a bundle.

    A machine that takes over what it cannot read would not start any more.
    """
    report, home = Report(), Path("/home/user")
    names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    lists = read_lists_file(directory / LISTS_NAME, report) if LISTS_NAME in names else None
    known = {} if lists is None else lists.lists
    reader = PolicyReader(home=home, lists=known, report=report)
    readers: dict[str, Callable[[Path], object]] = {
        SHORT_NAME: ShortReader(reader=reader).read,
        MAXIMUM_NAME: ShortReader(reader=reader, may_have_base=False).read,
        POLICY_NAME: reader.read,
        KEEP_NAME: lambda path: read_form(path, ManagedForm, report),
        REVOKED_NAME: lambda path: read_form(path, RevokedForm, report),
        REVIEWERS_NAME: lambda path: read_reviewers(path, home, report),
        ANNOTATIONS_NAME: lambda path: read_annotations_file(path, report),
    }
    for name in sorted(names):
        key = ANNOTATIONS_NAME if name.startswith("packs/") else name
        if key in readers:
            readers[key](directory / name)
    return [problem for problem in report.problems if problem.severity == "error"]
