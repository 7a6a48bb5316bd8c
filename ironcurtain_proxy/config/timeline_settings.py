"""The limits of the workspace timeline: section `containment`."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from ironcurtain_proxy.config.reading.declared import setting
from ironcurtain_proxy.config.reading.forms import says

_MEBIBYTE: Final = 1 << 20
_CACHES: Final = (
    *("node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".nox"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".gradle", ".next", ".nuxt", ".turbo"),
    ".parcel-cache",
)


_DirectoryName: TypeAlias = Annotated[
    str,
    says(
        r"(?!\.{1,2}$|\.git$)[^/\x00]+",
        "must be the name of a directory, not a path, and not `.git`",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSettings:
    """The limits of the timeline."""

    max_bytes: Annotated[int, Meta(ge=_MEBIBYTE, le=1 << 50)] = setting(
        "max_bytes", 2048 * _MEBIBYTE
    )
    """Bytes of file copies. One file may take a quarter of it."""
    max_files: Annotated[int, Meta(ge=1, le=5_000_000)] = setting("max_files", 200_000)
    """Files, directories and links that a workspace may have."""
    keep_days: Annotated[int, Meta(ge=1, le=3650)] = setting("keep_days", 14)
    caches: frozenset[_DirectoryName] = setting("caches", frozenset(_CACHES))
    """Names of cache directories, whose content can be regenerated and is not recorded."""
