"""Whether looking at the file system may hang."""

from pathlib import Path

import pytest

from ironcurtain_proxy.facts.paths import MountTable

LOCAL = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n28 27 0:5 / /tmp rw shared:1 - tmpfs t rw\n"


@pytest.mark.parametrize(
    ("table", "may_block"),
    [
        pytest.param(LOCAL, False, id="disks and memory do not"),
        pytest.param(LOCAL + "9 1 0:9 / /net rw - nfs4 h:/x rw\n", True, id="NFS may"),
        pytest.param(LOCAL + "9 1 0:9 / /s rw - fuse.sshfs h:/ rw\n", True, id="FUSE may"),
        pytest.param(LOCAL + "9 1 0:9 / /auto rw - autofs a rw\n", True, id="an automounter may"),
        pytest.param(
            LOCAL + "9 1 0:9 / /proc/sys/fs/binfmt_misc rw - autofs a rw\n",
            False,
            id="the kernel's own automounter does not",
        ),
        pytest.param(LOCAL + "nonsense\n", True, id="what is not understood may"),
        pytest.param("", True, id="an empty table says nothing"),
    ],
)
def test_a_mount_that_others_serve_may_block(
    tmp_path: Path, table: str, *, may_block: bool
) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(table)
    try:
        mounts = MountTable(str(path))
    except PermissionError:
        pytest.skip("a plain file cannot be watched here")
    assert mounts.may_block() is may_block
    mounts.close()
    assert mounts.may_block()


def test_without_a_table_everything_may_block(tmp_path: Path) -> None:
    assert MountTable(str(tmp_path / "missing")).may_block()


def test_the_real_table_can_be_watched() -> None:
    mounts = MountTable()
    assert mounts.may_block() in {True, False}
    mounts.close()
