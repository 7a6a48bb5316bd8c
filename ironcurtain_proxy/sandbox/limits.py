"""The limits of a sandbox on the machine's resources: section `limits` of a server's `sandbox`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec

MEBIBYTE: Final = 1 << 20


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """The limits of all processes of a sandbox together, except `open_files`."""

    processes: int = 4096
    """Processes and threads at a time: a large build fits, and a machine goes on with as many."""
    open_files: int = 65_536
    """The most open files of one process."""
    memory_mb: int | None = None
    """Mebibytes of memory; None: three quarters of the machine's."""
    free_disk_mb: int = 1024
    """The space that stays free where the sandbox may write; 0: none."""

    def __str__(self) -> str:
        memory = "3/4 of the" if self.memory_mb is None else f"{self.memory_mb:,} MiB of"
        return (
            f"{self.processes} processes, {memory} memory, "
            f"{self.open_files} open files each, {self.free_disk_mb:,} MiB of disk left free"
        )


def shown_limits(servers: Iterable[ServerSpec]) -> Iterator[str]:
    """The limits of all servers that may be confined, a line for each set of limits."""
    names: dict[SandboxLimits, list[str]] = {}
    for spec in servers:
        if spec.sandbox is not False:
            section = spec.sandbox.get("limits") if isinstance(spec.sandbox, Mapping) else None
            limits = limits_of(section if isinstance(section, dict) else {})
            names.setdefault(limits, []).append(spec.name)
    for limits, those in names.items():
        yield f"{', '.join(those)}: {limits}"


def limits_of(section: Mapping[str, Json]) -> SandboxLimits:
    """The limits of an entry's section, whose values were checked when it was read."""
    standard = SandboxLimits()
    return SandboxLimits(
        processes=_number(section, "processes", standard.processes),
        open_files=_number(section, "openFiles", standard.open_files),
        memory_mb=_number(section, "memoryMb", 0) or None,
        free_disk_mb=_number(section, "freeDiskMb", standard.free_disk_mb),
    )


def _number(section: Mapping[str, Json], key: str, standard: int) -> int:
    said = section.get(key)
    return said if isinstance(said, int) and not isinstance(said, bool) else standard
