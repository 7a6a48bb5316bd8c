"""What the process of a server can touch, as it was found of that very process."""

from dataclasses import dataclass

from ironcurtain_proxy.model.path import RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """A confined process. Of one that is not confined there is none."""

    writable: tuple[RealPath, ...]
    """What it may write of the machine's own file systems."""
    temporary: RealPath | None
    """The directory that is its own and ends with it; None: it has none."""
    is_offline: bool
    """It reaches no host: no interface leads out, and its proxy lets it reach nothing."""
    is_full: bool = False
    """Its own `/tmp` holds more than a session may keep."""

    def writes_only_in(self, workspace: RealPath) -> bool:
        """Whether all that it may write lies in the workspace or is its own."""
        own = (workspace,) if self.temporary is None else (workspace, self.temporary)
        return all(any(path.is_within(one) for one in own) for path in self.writable)
