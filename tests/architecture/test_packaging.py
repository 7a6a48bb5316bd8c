"""What packages the program names what is there, and one version of each tool."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()


def test_the_container_is_built_from_files_that_are_there() -> None:
    logical = CONTAINERFILE.replace("\\\n", " ").splitlines()
    copied = [line.split()[1:-1] for line in logical if line.startswith("COPY ")]
    own = [name for names in copied for name in names if not names[0].startswith("--from")]
    assert "uv.lock" in own
    assert [name for name in own if not (ROOT / name).exists()] == []
    # A package of the wheel is copied with what its links lead to.
    links = [path for path in (ROOT / "ironcurtain_proxy").rglob("*") if path.is_symlink()]
    led_to = [path.resolve().relative_to(ROOT).parts[0] for path in links]
    assert led_to
    assert set(led_to) <= set(own)


def test_the_container_runs_as_an_ordinary_user_and_installs_by_hash() -> None:
    assert CONTAINERFILE.rindex("USER agent") < CONTAINERFILE.rindex("ENTRYPOINT")
    assert "--require-hashes" in CONTAINERFILE


def test_one_version_of_uv_packages_everything() -> None:
    setup = (ROOT / "scripts/setup").read_text()
    versions = set(re.findall(r"\buv==([\d.]+)", CONTAINERFILE + RELEASE + setup))
    assert len(versions) == 1


@pytest.mark.parametrize("name", ["quickstart", "sbom", "setup"])
def test_a_script_of_the_shell_can_be_read(name: str) -> None:
    script = ROOT / "scripts" / name
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_the_release_makes_its_bill_of_materials() -> None:
    for document in (RELEASE, (ROOT / "RELEASE.md").read_text()):
        assert "scripts/sbom dist/ironcurtain-proxy.cdx.json" in document
