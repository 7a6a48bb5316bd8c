"""The workspace is no part of what a server is, or says; everything else is."""

import pytest

from ironcurtain_proxy.facts.live_catalogue import pin_digest
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.book import without_workspace

HERE, THERE = "/home/ann/one", "/home/ann/two"


def spec(*args: str, cwd: str | None = None, **env: str) -> ServerSpec:
    return ServerSpec(name="s", annotations="s", command="server", args=args, env=env, cwd=cwd)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (spec(HERE), spec(THERE)),
        (spec(f"{HERE}/"), spec(THERE)),
        (spec("-y", "files@1", HERE, "/data"), spec("-y", "files@1", THERE, "/data")),
        (spec(f"--root={HERE}"), spec(f"--root={THERE}")),
        (spec(ROOT=HERE), spec(ROOT=THERE)),
        (spec(cwd=HERE), spec(cwd=THERE)),
    ],
)
def test_a_server_is_the_same_in_each_workspace(here: ServerSpec, there: ServerSpec) -> None:
    assert pin_digest(here, HERE) == pin_digest(there, THERE)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (spec(f"{HERE}/server.py"), spec(f"{THERE}/server.py")),
        (spec(HERE), spec(HERE)),
        (spec(HERE), spec("@workspace")),
        (spec(HERE, THERE), spec(THERE, HERE, "x")),
        (spec(f"{HERE}2"), spec(f"{THERE}2")),
        (spec(HERE), spec(THERE, THERE)),
        (spec(f"http://x/?a={HERE}"), spec(f"http://x/?a={THERE}")),
        (spec("-y", "files@1", HERE), spec("-y", "files@2", THERE)),
    ],
)
def test_nothing_else_makes_two_servers_one(here: ServerSpec, there: ServerSpec) -> None:
    assert pin_digest(here, HERE) != pin_digest(there, THERE)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f"Works in {HERE}. Not in {HERE}.d", f"Works in @workspace. Not in {HERE}.d"),
        (f"Works in {HERE}/src", "Works in @workspace/src"),
        ({"description": f"file://{HERE} only"}, {"description": "file://@workspace only"}),
        (f"{HERE}2 and x{HERE} and {HERE}-b", f"{HERE}2 and x{HERE} and {HERE}-b"),
        (f"{HERE} and @workspace", f"{HERE} and @workspace"),
        ([1, None, 2**70, "other"], [1, None, 2**70, "other"]),
    ],
)
def test_what_a_server_says_is_compared_without_the_workspace(said: Json, left: Json) -> None:
    assert without_workspace(said, HERE) == left


@pytest.mark.parametrize("workspace", [None, "/", "/home"])
def test_a_workspace_that_is_everywhere_is_left_in(workspace: str | None) -> None:
    assert without_workspace("in /home/ann", workspace) == "in /home/ann"
