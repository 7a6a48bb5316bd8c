"""Layers of settings: the environment over the configuration file.

Defaults, meanings and keys of settings are in `config.settings`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.environment import CONFIG_VARIABLE, Environment
from ironcurtain_proxy.config.reading.operator_paths import (
    STATE_DIRECTORY,
    absolute,
    expand_home,
    working_directory,
)
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import is_there, read_document

CONFIG_NAME: Final = "config.json"

T = TypeVar("T")
D = TypeVar("D")


class Layer(Struct, frozen=True):
    """One source of settings."""

    spots: Mapping[str, Spot]
    """The values by key; `section.key` for nested keys. A section is also present as a whole."""
    base: Path
    """The directory that relative paths are relative to."""


class Layers(Struct, frozen=True):
    """All sources, the environment first."""

    environment: Layer
    file: Layer
    config_file: Path | None
    home: Path
    file_is_unread: bool = False
    """Whether the configuration file exists and cannot be read, so that its settings are unknown.
    """

    def read(self, key: str, read: Callable[[Spot], T], default: D) -> T | D:
        """Return a setting, or its default.

        Both sources are read, so that mistakes in both are reported.
        """
        found = [
            read(layer.spots[key]) for layer in (self.environment, self.file) if key in layer.spots
        ]
        return found[0] if found else default

    def path(self, key: str) -> Path | None:
        """Return a setting that names a path, absolute, or None."""
        return self.read(key, self.as_path, None)

    def paths(self, key: str) -> tuple[Path, ...]:
        """Return a setting with a list of paths."""
        found = self.read(key, lambda spot: spot.each(self.as_path), ())
        return tuple([path for path in found if path is not None])

    def as_path(self, spot: Spot) -> Path | None:
        """Return a path as written in either source.

        A relative path is relative to the file that holds it; in the environment, to the proxy's
        working directory.
        """
        text = spot.name()
        in_file = self.config_file is not None and spot.source == str(self.config_file)
        base = self.file.base if in_file else self.environment.base
        if not text:
            return None
        try:
            return absolute(text, self.home, base)
        except ValueError as error:
            spot.error(str(error))
            return None

    def spot(self, key: str) -> Spot | None:
        """Return the value of a setting in the source that wins, or None."""
        return self.environment.spots.get(key) or self.file.spots.get(key)


def read_layers(
    environ: Mapping[str, str],
    environment: Environment,
    config: Path | None,
    home: Path,
    report: Report,
    keys: Iterable[str],
) -> Layers:
    """Read the configuration file, if it exists, and put the environment over it.

    Args:
        environ: for the path of the file.
        environment: the settings found there.
        config: the file that the command line names; None: it names none.
        home: the home directory.
        report: gets the mistakes.
        keys: all keys of the file, as `section.key`.
    """
    file = _find(environ, config, home)
    read = None if file is None else read_document(file, report)
    spots: dict[str, Spot] = {}
    if read is not None:
        _gather(read[1], "", keys, spots)
    return Layers(
        environment=Layer(environment.spots, working_directory()),
        file=Layer(spots, home if file is None else file.parent),
        config_file=file,
        home=home,
        file_is_unread=file is not None and read is None,
    )


def _find(environ: Mapping[str, str], config: Path | None, home: Path) -> Path | None:
    """The file of the command line, else of the environment, else the default one if it exists."""
    said = str(config) if config is not None else environ.get(CONFIG_VARIABLE, "").strip()
    if said:
        return Path(os.path.normpath(working_directory() / expand_home(said, home)))
    usual = home / STATE_DIRECTORY / CONFIG_NAME
    return usual if is_there(usual) else None


def _gather(spot: Spot, prefix: str, keys: Iterable[str], spots: dict[str, Spot]) -> None:
    """Collect the values of a section and of nested sections; the file as a whole has no prefix."""
    parts = [key.removeprefix(prefix).partition(".") for key in keys if key.startswith(prefix)]
    sections = {name for name, dot, _ in parts if dot}
    members = spot.object(sorted({name for name, _, _ in parts}))
    for key in members:
        name = prefix + key
        spots[name] = members.required(key)
        if key in sections:
            _gather(spots[name], f"{name}.", keys, spots)
