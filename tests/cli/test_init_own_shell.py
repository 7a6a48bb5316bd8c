"""The offer of our own shell: its name, what it replaces, and which servers run commands."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.init_servers import (
    FoundShell,
    OwnShellWish,
    own_shell,
    shells_read,
    with_own_shell,
)
from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.clients.finding import read_client_file
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.values import Json
from tests.cli.test_init import Machine, machine

__all__ = ["machine"]

RUN, MORE = FoundShell("run", does_more=False), FoundShell("more", does_more=True)
BUILTIN: Mapping[str, Json] = {"builtin": "shell"}


@pytest.mark.parametrize(
    ("wish", "shells", "moved", "present", "serves", "kept"),
    [
        ("none", [RUN], "run", {}, None, ""),
        ("beside", [RUN], "run files", {}, {"run": ("run", "shell")}, "run files shell"),
        ("instead", [RUN], "run files", {}, {"run": ("shell",)}, "files shell"),
        # A server with other tools stays: our own shell cannot do what they do.
        (
            *("instead", [RUN, MORE], "run more", {}),
            {"run": ("shell",), "more": ("more", "shell")},
            "more shell",
        ),
        # The name is free, or becomes free, or another one is taken; `shell__x` would collide.
        ("beside", [RUN], "run shell", {}, {"run": ("run", "own-shell")}, "run shell own-shell"),
        (
            *("beside", [RUN], "run shell__x own-shell", {}),
            {"run": ("run", "own-shell-2")},
            "run shell__x own-shell own-shell-2",
        ),
        (
            *("instead", [FoundShell("shell", does_more=False)], "shell", {}),
            {"shell": ("shell",)},
            "shell",
        ),
        # There is one already, for another client, which also uses the server that is found.
        (*("instead", [RUN], "run", {"run": {}, "ours": BUILTIN}), {"run": ("ours",)}, "run ours"),
        # No server runs commands: it was asked for, and every client gets it.
        ("beside", [], "files", {}, {"files": ("files", "shell")}, "files shell"),
    ],
)
def test_our_own_shell_has_a_name_of_its_own_and_replaces_only_what_it_can(
    wish: OwnShellWish,
    shells: list[FoundShell],
    moved: str,
    present: Mapping[str, Mapping[str, Json]],
    serves: Mapping[str, tuple[str, ...]] | None,
    kept: str,
) -> None:
    own = own_shell(wish, shells, moved.split(), present)
    assert (None if own is None else own.serves) == serves
    if own is not None:
        entries: dict[str, Json] = dict.fromkeys([*moved.split(), *present])
        found = with_own_shell(entries, own, present)
        assert found.keys() == {*kept.split()}
        assert found[own.name] == (BUILTIN if own.is_new else None)
        assert {tool.kind for tool in own.read().tools} == {"shell", "unknown"}


def test_a_server_of_somebody_else_never_gets_the_annotations_of_our_own_shell() -> None:
    run: Mapping[str, Json] = {
        "name": "run_command",
        "inputSchema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
    look: Mapping[str, Json] = {"name": "look", "inputSchema": {"type": "object"}}
    servers = [annotate("own-shell", [run]), annotate("more", [run, look]), annotate("no", [look])]
    assert servers[0].annotations == "own-shell-server"
    found = shells_read(servers, {"own-shell", "more", "no"})
    assert found == [FoundShell("own-shell", does_more=False), MORE]


def test_what_init_reads_of_our_own_file_has_our_own_shell(tmp_path: Path) -> None:
    file = tmp_path / "mcp-servers.json"
    file.write_bytes(orjson.dumps({"shell": {**BUILTIN, "description": "ours"}}))
    entries = read_client_file(file, Report()).entries
    assert entries == {"shell": {**BUILTIN, "description": "ours"}}


def test_a_dry_run_shows_our_own_shell_beside_a_server_whose_pack_runs_commands(
    machine: Machine,
) -> None:
    args: list[Json] = ["-y", "@wonderwhy-er/desktop-commander"]
    machine.give_cursor(desk={"command": "npx", "args": args}, files=machine.server("files"))
    before = machine.files()
    code, said, faults = machine.run("--dry-run")
    assert code == 0, faults
    assert "desk runs commands: would ask whether our own shell goes beside" in said
    assert '"SERVER_FILTER": "desk,shell,files"' in said
    code, said, _ = machine.run("--dry-run", "--own-shell", "none")
    assert '"SERVER_FILTER": "desk,files"' in said
    assert machine.files() == before
