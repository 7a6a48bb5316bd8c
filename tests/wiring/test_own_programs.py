"""The programs that the kernel runs for itself lie where no agent writes."""

import os
from pathlib import Path

from msgspec.structs import replace

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.installed import beyond_agents
from ironcurtain_proxy.sandbox.launch import Confinement, with_own_programs
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.wiring.confinement import with_own_path


def test_the_path_of_the_kernel_leaves_out_the_workspace_and_what_is_no_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "w/bin").mkdir(parents=True)
    (tmp_path / "into").symlink_to(tmp_path / "w/bin")
    (tmp_path / "w/out").symlink_to("/usr/bin")
    for one in ("w", "w/bin", "w/../w/bin", "into", "w/out"):
        given = {"PATH": f"{tmp_path / one}:/usr/bin::bin:./x", "HOME": "/h"}
        workspace = RealPath.from_text(os.path.realpath(tmp_path / "w"))
        assert beyond_agents(given, workspace) == {"PATH": "/usr/bin", "HOME": "/h"}, one
        assert beyond_agents({"PATH": f"{tmp_path / one}:."}, workspace) == {"PATH": os.defpath}
    assert beyond_agents({"PATH": ""}, None) == {"PATH": os.defpath}


def test_what_runs_in_the_sandbox_has_the_whole_path_and_srt_has_not() -> None:
    workspace = RealPath.from_text("/w")
    given = with_own_programs({"PATH": "/w/bin:/u", "A": "a"}, workspace)
    assert given == {"PATH": "/u", "IRONCURTAIN_INSIDE_PATH": "/w/bin:/u", "A": "a"}
    assert with_own_programs({"PATH": "/u"}, workspace) == {"PATH": "/u"}


def test_servers_keep_the_whole_path_and_their_own_and_confined_ones_inside_alone() -> None:
    held = ServerSpec(name="held", command="x", annotations="held")
    free, own = replace(held, name="free"), replace(held, name="own", env={"PATH": "/own"})
    confined = {"held": Confinement(command=("srt",), profile=SandboxProfile())}
    workspace = RealPath.from_text("/w")
    specs, inside = with_own_path([held, free, own], confined, {"PATH": "/w/b:/u"}, workspace)
    assert [dict(one.env) for one in specs] == [{}, {"PATH": "/w/b:/u"}, {"PATH": "/own"}]
    assert dict(inside["held"].variables) == {"PATH": "/w/b:/u"}
    same = with_own_path([held, free], confined, {"PATH": "/u"}, workspace)
    assert same == ([held, free], confined)
