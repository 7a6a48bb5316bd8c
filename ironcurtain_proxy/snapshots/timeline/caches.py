"""Cache directories, whose content can be made again; they are not scanned.

A name alone does not show a cache. Below a repository it is the name of a branch (`target/x` is a
file of `.git/refs/heads/target`), and `target` and `venv` are names that people give to sources.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "target": (
        *("Cargo.toml", "pom.xml", "build.sbt", "project.clj", "dbt_project.yml"),
        *("target/CACHEDIR.TAG", "target/.rustc_info.json"),
    ),
    "venv": ("venv/pyvenv.cfg", "venv/CACHEDIR.TAG"),
}
"""The files that prove an ambiguous name to be a cache: one of them lies beside it."""


def is_cache(path: str, name: str, parent: int, caches: frozenset[str]) -> bool:
    """Whether a directory is a cache.

    Args:
        path: where it lies, below the workspace; empty: in the workspace itself.
        name: what it is called.
        parent: a descriptor of the directory that it lies in.
        caches: the names of caches.
    """
    if name not in caches or any(one.lower().endswith(".git") for one in path.split("/")):
        return False
    signs = _BESIDE.get(name)
    return signs is None or any(_is_there(sign, parent) for sign in signs)


def _is_there(name: str, parent: int) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        return True
    return False
