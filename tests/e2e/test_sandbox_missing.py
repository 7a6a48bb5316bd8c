"""Where no sandbox can be had, or it cannot be as it is configured."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.e2e.confined_installation import PATH, add_hostile, done, folder
from tests.e2e.installation import Installation
from tests.e2e.process_tree import marked
from tests.e2e.raw_client import Message
from tests.program import PATIENCE

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every program of the PATH."""
    programs = tmp_path_factory.mktemp("programs")
    for directory in reversed(PATH.split(":")):
        for program in Path(directory).iterdir() if os.access(directory, os.R_OK) else ():
            place = programs / program.name
            place.unlink(missing_ok=True)
            place.symlink_to(program.resolve())
    return programs


PathWithout: TypeAlias = Callable[..., Path]


@pytest.fixture
def path_without(
    installation: Installation, programs: Path, tmp_path: Path
) -> Iterator[PathWithout]:
    """Lets a test's PATH be a directory with every program but these, until the test ends."""
    away = tmp_path / "away"
    away.mkdir()

    def leave_out(*names: str) -> Path:
        installation.variables["PATH"] = str(programs)
        for name in names:
            (programs / name).rename(away / name)
        return programs

    yield leave_out
    for program in away.iterdir():
        program.rename(programs / program.name)


LACKING: Final = (
    ("srt", "npm install", "sandbox-runtime"),
    ("bwrap", "apt-get install", "bubblewrap"),
    ("socat", "apt-get install", "socat"),
    ("rg", "apt-get install", "ripgrep"),
    ("node", "install Node.js", "node"),
)

lacking = pytest.mark.parametrize(
    ("program", "remedy", "package"), LACKING, ids=[one[0] for one in LACKING]
)


def outcome_of_start(installation: Installation) -> tuple[int, str]:
    """Exit code and standard error of a proxy that must not start."""
    agent = installation.launch()
    code = agent.process.wait(PATIENCE)
    return code, agent.errors.read_text()


@pytest.mark.requirement("C-14")
@lacking
def test_enforce_does_not_start_and_names_what_is_missing_and_how_to_get_it(
    installation: Installation, path_without: PathWithout, program: str, remedy: str, package: str
) -> None:
    add_hostile(installation, "hostile")
    installation.variables["SANDBOX_POLICY"] = "enforce"
    path_without(program)
    code, said = outcome_of_start(installation)
    assert code != 0
    assert package in said
    assert remedy in said
    assert marked(installation.mark) == set()
    assert "Traceback" not in said


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_where_a_sandbox_is_installed_and_cannot_run(
    installation: Installation, path_without: PathWithout
) -> None:
    """What a kernel without user namespaces does to it."""
    add_hostile(installation, "hostile")
    installation.variables["SANDBOX_POLICY"] = "enforce"
    fake = path_without("bwrap") / "bwrap"
    fake.write_text("#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2\nexit 1\n")
    fake.chmod(0o755)
    code, said = outcome_of_start(installation)
    assert code != 0
    assert "No permissions to create a new namespace" in said
    assert "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in said
    assert "Traceback" not in said


@pytest.mark.requirement("C-11", "C-14")
def test_enforce_starts_without_a_sandbox_where_no_server_needs_one(
    installation: Installation, path_without: PathWithout
) -> None:
    add_hostile(installation, "hostile", sandbox=False)
    installation.variables["SANDBOX_POLICY"] = "enforce"
    path_without("srt", "bwrap")
    done(installation.start().call("pids"))


@pytest.mark.requirement("C-15")
@lacking
def test_warn_runs_without_a_sandbox_says_so_and_records_no_confinement(
    installation: Installation, path_without: PathWithout, program: str, remedy: str, package: str
) -> None:
    add_hostile(installation, "hostile")
    installation.variables["SANDBOX_POLICY"] = "warn"
    path_without(program)
    agent = installation.start()
    outside = installation.root / "outside.txt"
    done(agent.call("write", {"path": str(outside), "text": "x"}))
    assert outside.exists()
    assert {record["sandboxed"] for record in installation.records()} == {False}
    said = agent.errors.read_text()
    assert said.count("unconfined") == 1
    assert "warning" in said
    assert "hostile" in said
    assert package in said
    assert remedy in said


@pytest.mark.requirement("C-15")
def test_warn_is_silent_where_every_server_is_confined(installation: Installation) -> None:
    add_hostile(installation, "hostile")
    agent = installation.start()
    done(agent.call("pids"))
    assert installation.outcomes()[-1]["sandboxed"] is True
    assert "warning" not in agent.errors.read_text()


@pytest.mark.requirement("C-14")
def test_a_sandbox_is_tried_at_the_first_start_and_then_remembered(
    installation: Installation,
) -> None:
    add_hostile(installation, "hostile")
    installation.known_sandbox = None
    installation.variables["SANDBOX_POLICY"] = "enforce"
    programs, runs = folder(installation, "programs"), installation.root / "runs"
    srt = programs / "srt"
    srt.write_text(f'#!/bin/sh\necho run >>{runs}\nexec {shutil.which("srt", path=PATH)} "$@"\n')
    srt.chmod(0o755)
    installation.variables["PATH"] = f"{programs}:{PATH}"
    for expected in (2, 3):
        agent = installation.start()
        done(agent.call("pids"))
        agent.close()
        assert len(runs.read_text().splitlines()) == expected


@pytest.mark.requirement("C-13")
@pytest.mark.parametrize(
    "sandbox",
    [
        {"network": {"allowedDomain": ["example.com"]}},
        {"filesystem": {"allowWrites": ["/srv"]}},
        {"networks": {}},
    ],
    ids=["a misspelt domain list", "a misspelt file list", "a misspelt section"],
)
def test_a_misspelt_sandbox_stops_the_start(installation: Installation, sandbox: Message) -> None:
    add_hostile(installation, "hostile", sandbox=sandbox)
    code, said = outcome_of_start(installation)
    assert code != 0
    assert "sandbox" in said
    assert "Traceback" not in said


@pytest.mark.requirement("C-13")
@pytest.mark.parametrize("domain", ["*", "*.com", "https://example.com/"])
def test_a_domain_that_is_none_stops_the_start(installation: Installation, domain: str) -> None:
    add_hostile(installation, "hostile", sandbox={"network": {"allowedDomains": [domain]}})
    code, said = outcome_of_start(installation)
    assert code == 2
    assert f'server "hostile": sandbox.network: "{domain}" is no host' in said
    assert "Traceback" not in said
    assert marked(installation.mark) == set()
