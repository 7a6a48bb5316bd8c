"""The measured limits of a server's process."""

from dataclasses import dataclass

from ironcurtain_proxy.model.path import RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """The limits of a confined process. An unconfined process has no `Walls`."""

    writable: tuple[RealPath, ...]
    """Paths on the machine's own file systems that the process can write."""
    temporary: RealPath | None
    """The private temporary directory of the process; None: it has none."""
    closed: tuple[RealPath, ...] = ()
    """Mounts that the process cannot write to, also below the writable paths."""
    is_offline: bool
    """The process reaches no host: no interface leads out, and its proxy allows none."""
    shown: tuple[RealPath, ...] = ()
    """The user's credentials that the process can read although its sandbox is to hide them."""
    is_full: bool = False
    """The private `/tmp` of the process holds more than a session may keep."""

    def writes_only_in(self, workspace: RealPath) -> bool:
        """Whether all writable paths lie in the workspace or in the private directory."""
        own = (workspace,) if self.temporary is None else (workspace, self.temporary)
        return all(any(path.is_within(one) for one in own) for path in self.writable)

    def can_write(self, path: RealPath) -> bool:
        """Whether it may write to a path, or delete it. What is closed keeps its directories."""
        inmost = max(
            [one for one in (*self.writable, *self.closed) if path.is_within(one)],
            key=lambda one: len(one.parts),
            default=None,
        )
        return inmost is None or inmost not in self.closed
