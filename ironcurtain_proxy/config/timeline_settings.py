"""The limits of the workspace timeline: section `containment`."""

from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.config.reading.declared import setting, whole
from ironcurtain_proxy.config.reading.document import Spot

_MEBIBYTE: Final = 1 << 20
_CACHES: Final = (
    *("node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".nox"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".gradle", ".next", ".nuxt", ".turbo"),
    ".parcel-cache",
)


def _names(spot: Spot) -> frozenset[str]:
    names = spot.texts()
    for name in names:
        if not name or "/" in name or name in {".", "..", ".git"}:
            spot.error("must be names of directories, not paths, and not `.git`")
    return frozenset(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSettings:
    """The limits of the timeline."""

    max_bytes: int = setting("max_bytes", whole(_MEBIBYTE, 1 << 50), 2048 * _MEBIBYTE)
    """Bytes of file copies. One file may take a quarter of it."""
    max_files: int = setting("max_files", whole(1, 5_000_000), 200_000)
    """Files, directories and links that a workspace may have."""
    keep_days: int = setting("keep_days", whole(1, 3650), 14)
    caches: frozenset[str] = setting("caches", _names, frozenset(_CACHES))
    """Names of cache directories, whose content can be regenerated and is not recorded."""
