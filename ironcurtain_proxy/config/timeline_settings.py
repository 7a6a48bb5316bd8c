"""The limits of the workspace timeline: section `containment`."""

from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

_MEBIBYTE: Final = 1 << 20
_MOST_FILES: Final = 5_000_000
_CACHES: Final = (
    *("node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".nox"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".gradle", ".next", ".nuxt", ".turbo"),
    ".parcel-cache",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSettings:
    """The limits of the timeline."""

    max_bytes: int = 2048 * _MEBIBYTE
    """Bytes of file copies. One file may take a quarter of it."""
    max_files: int = 200_000
    """Files, directories and links that a workspace may have."""
    keep_days: int = 14
    caches: frozenset[str] = frozenset(_CACHES)
    """Names of cache directories, whose content can be regenerated and is not recorded."""


def read_timeline(layers: Layers) -> TimelineSettings:
    """Read the limits from the section `containment`."""
    standard = TimelineSettings()
    return TimelineSettings(
        max_bytes=layers.read(
            "containment.max_bytes",
            lambda spot: spot.whole(_MEBIBYTE, 1 << 50),
            standard.max_bytes,
        ),
        max_files=layers.read(
            "containment.max_files", lambda spot: spot.whole(1, _MOST_FILES), standard.max_files
        ),
        keep_days=layers.read(
            "containment.keep_days", lambda spot: spot.whole(1, 3650), standard.keep_days
        ),
        caches=layers.read("containment.caches", _names, standard.caches),
    )


def _names(spot: Spot) -> frozenset[str]:
    names = spot.texts()
    for name in names:
        if not name or "/" in name or name in {".", "..", ".git"}:
            spot.error("must be names of directories, not paths, and not `.git`")
    return frozenset(names)
