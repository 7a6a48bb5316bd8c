"""The file that names the port of a front, when another front takes its place."""

from pathlib import Path

from ironcurtain_proxy.front.guard import FrontSettings, listening, port_of, take_settings


def _settings(root: Path) -> FrontSettings:
    said = {"PROXY_TCP_PORT": "0", "PROXY_PORT_FILE": str(root / "port"), "PROXY_TOKEN": "t" * 32}
    return take_settings(said, root)


def test_a_front_removes_the_file_that_names_its_own_port(tmp_path: Path) -> None:
    file = tmp_path / "port"
    with listening(_settings(tmp_path)) as [found]:
        assert file.read_text("ascii") == f"{port_of(found)}\n"
    assert not file.exists()


def test_a_front_keeps_another_port_even_in_a_file_of_the_same_inode(tmp_path: Path) -> None:
    # A file system gives the inode of a removed file to the next one, which another front wrote.
    file = tmp_path / "port"
    with listening(_settings(tmp_path)):
        inode = file.stat().st_ino
        file.write_text("1\n", "ascii")
        assert file.stat().st_ino == inode
    assert file.read_text("ascii") == "1\n"
