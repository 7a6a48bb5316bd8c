"""The hidden names of a project that a person has approved: each is asked about once.

    ~/.ironcurtain/names/4f1c…    one name a line, for the workspace of that digest

An approved name, such as `.frobnicate`, is the project's own from then on, also where a later
session finds nothing of it on the disk. Names that programs act on (`.vscode`, `.claude`) are asked
about each time, whatever stands here: the rules judge those first. No sandbox sees the file.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.private_files import closed_after

DIRECTORY: Final = "names"
"""In the directory of the proxy's state."""
_MOST: Final = 64 << 10
"""The bytes of the file that are read, and after which nothing is added."""
_FLAGS: Final = os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class SettledNames(Struct, frozen=True):
    """The approved hidden names of one workspace, in a file."""

    file: Path

    @classmethod
    def of(cls, state_dir: Path, workspace: str) -> "SettledNames":
        """Return those of a workspace, whether there are any or not."""
        digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()
        return cls(state_dir / DIRECTORY / digest[:32])

    def read(self) -> frozenset[str]:
        """Return the names, in lower case. What cannot be read is asked about again."""
        with suppress(OSError), self.file.open("rb") as file:
            whole, _, _ = file.read(_MOST).rpartition(b"\n")
            return frozenset(map(os.fsdecode, whole.split(b"\n"))) - {""}
        return frozenset()

    def add(self, names: Iterable[str]) -> None:
        """Keep names. Where that fails, they are asked about again."""
        known = self.read()
        new = [one.lower() for one in names if "\n" not in one and one.lower() not in known]
        with suppress(OSError):
            if not new or (self.file.exists() and self.file.stat().st_size > _MOST):
                return
            self.file.parent.mkdir(0o700, parents=True, exist_ok=True)
            with closed_after(os.open(self.file, os.O_WRONLY | _FLAGS, 0o600)) as opened:
                # A line that a full disk cut off counts as none, and ends here.
                os.write(opened, os.fsencode("".join(f"\n{one}\n" for one in new)))
