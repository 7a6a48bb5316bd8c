"""The directory that `init` proposes as the workspace. Not a command itself."""

from pathlib import Path

from ironcurtain_proxy.errors import ConfigurationError


def proposed_workspace(given: Path | None, here: Path, home: Path) -> tuple[Path, str]:
    """The workspace and where it comes from, in words.

    Raises:
        ConfigurationError: no directory can be proposed.
    """
    if given is not None:
        return given.expanduser().resolve(), "as given"
    root = next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
    if root is not None and _is_fit(root, home):
        return root, "the repository around this directory" if root != here else "this repository"
    if _is_fit(here, home):
        return here, "this directory"
    raise ConfigurationError(
        f"{here} is too much for an agent: run init in a project, or name one with --workspace"
    )


def _is_fit(place: Path, home: Path) -> bool:
    return place != place.parent and not home.is_relative_to(place)
