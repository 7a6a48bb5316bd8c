"""A power cut at any moment of a commit leaves the workspace as it was, or as the commit made it.

On a file system of its own, whose device is copied as it is at that moment: what the kernel had not
written by then is lost. Only root can make one.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.transactions.transaction import SessionViews, commit
from tests.transactions.bench import Workbench, recover
from tests.transactions.test_interrupted import abandon, at_each_call, furnish, state, view_of


class Disk:
    """A file system in a file, mounted.

    Each cut gives it another device: a mount namespace of any other program on the machine that
    began meanwhile keeps the old one mounted, with all that is in the kernel's memory.
    """

    def __init__(self, base: Path) -> None:
        self._images, self.top = base / "images", base / "top"
        self._device = ""
        for one in (self._images, self.top):
            one.mkdir()
        # In memory, so that no commit waits for a busy disk.
        self._run("mount", "-t", "tmpfs", "none", str(self._images))
        self._image = self._images / "0"
        with self._image.open("wb") as file:
            file.truncate(24 << 20)
        self._run("mkfs.ext4", "-q", str(self._image))
        self._mount()

    def _run(self, *words: str) -> str:
        ran = subprocess.run(words, check=False, capture_output=True, text=True)
        if ran.returncode != 0:
            pytest.skip(f"no file system of its own: {ran.stderr.strip()}")
        return ran.stdout

    def _mount(self) -> None:
        self._device = self._run("losetup", "--find", "--show", str(self._image)).strip()
        self._run("mount", "-o", "commit=300", self._device, str(self.top))

    def _unmount(self) -> None:
        for words in (["umount", "-l", str(self.top)], ["losetup", "--detach", self._device]):
            subprocess.run(words, check=True)
        self._image.unlink()

    def cut(self) -> None:
        """Lose what is not on the device, as when the power fails and comes back."""
        # Another program waits for the disk: this writes the names, but no contents of others.
        with (self.top / "other").open("w") as other:
            os.fsync(other.fileno())
        content, before = self._image.read_bytes(), b""
        while content != before:
            # The power fails at one moment, in which the kernel may not be writing.
            content, before = self._image.read_bytes(), content
        self._unmount()
        self._image = self._images / f"{int(self._image.name) + 1}"
        self._image.write_bytes(content)
        self._mount()

    def end(self) -> None:
        self._unmount()
        subprocess.run(["umount", "-l", str(self._images)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.end()


def test_the_power_may_fail_at_any_step_of_a_commit(disk: Disk) -> None:
    w, number, halves = Workbench(disk.top / "base"), 0, 0
    furnish(w)
    before = state(w)
    killed = True
    while killed:
        # What an earlier recovery wrote is on the disk, or the cut would take that as well.
        subprocess.run(["sync", "-f", str(disk.top)], check=True)
        view = view_of(w)
        before = state(w)
        killed = at_each_call(lambda view=view: commit(view.directory), number)  # type: ignore[misc]
        after = state(w)
        halves += after != before
        view.close()
        abandon(w)
        disk.cut()
        assert recover(w.store) == [], number
        assert not any(w.store.iterdir()), number
        assert state(w) == (before if killed else after), number
        w.session = SessionViews(w.store)
        number += 3
    w.session.close()
    assert halves
