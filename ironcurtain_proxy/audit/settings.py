"""Settings of an audit log."""

from typing import Literal, TypeAlias

from msgspec import Struct

FsyncPolicy: TypeAlias = Literal["group", "always"]
"""The moment at which a record is on the disk: at most 100 ms after `record` returned, or before it
returns."""


class LogSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings of a log."""

    redaction: bool = True
    """Whether secrets are masked before they are written."""
    fsync: FsyncPolicy = "group"
    write_deadline: float = 2.0
    """Seconds until a write counts as failed."""
    max_bytes: int | None = None
    """The size at which a new file is begun; None: never."""
