"""`decide --dir`: the kernel's files in one directory, with `engine.json` instead of settings."""

from dataclasses import dataclass
from pathlib import Path

from ironcurtain_proxy.administration.policy_loading import LoadedPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """Everything a decision needs, read from one directory; no user configuration."""

    loaded: LoadedPolicy
    home: Path
    """What `~` stands for."""
    container_workspace_dir: str | None = None


def load_engine(directory: Path, home: Path) -> LoadedEngine:
    """Read a `decide` directory; `home` is used if `engine.json` names none.

    Raises:
        ProblemsError: a file cannot be used; it holds everything found.
    """
    raise NotImplementedError
