"""Where a server runs, and what its command means there."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.starting import tidy, with_directories
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import OPTIONS, a_call, running, scripted
from tests.tables import table


def spec(*args: str, command: str = "node", cwd: str | None = None) -> ServerSpec:
    return ServerSpec(name="s", annotations="s", command=command, args=args, cwd=cwd)


def test_a_server_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    settled = with_directories(spec(), tmp_path / "state", tmp_path)
    assert settled.cwd == str(tmp_path / "state" / "s.cwd")
    assert Path(settled.cwd).stat().st_mode & 0o777 == 0o700


def test_what_the_operator_said_stays(tmp_path: Path) -> None:
    said = spec("./a.js", cwd="/srv")
    assert with_directories(said, tmp_path, tmp_path) == said


@pytest.mark.parametrize(
    ("argument", "becomes_absolute"),
    table("downstream/working_directory.made_absolute", list[tuple[str, bool]]),
)
def test_arguments_that_name_something_where_they_were_written_are_made_absolute(
    tmp_path: Path, argument: str, becomes_absolute: bool
) -> None:
    (tmp_path / "node_modules/x").mkdir(parents=True)
    (tmp_path / "node_modules/x/index.js").touch()
    (tmp_path / "index.js").touch()
    (settled,) = with_directories(spec(argument), tmp_path / "state", tmp_path).args
    assert settled == (str(tmp_path / argument) if becomes_absolute else argument)


def test_a_command_with_a_slash_is_meant_where_it_was_written(tmp_path: Path) -> None:
    assert (
        with_directories(spec(command="bin/x"), tmp_path / "s", tmp_path).command
        == f"{tmp_path}/bin/x"
    )
    assert with_directories(spec(command="npx"), tmp_path / "s", tmp_path).command == "npx"


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"s\.cwd: the working directory of server s"):
        with_directories(spec(), tmp_path / "file", tmp_path)


def test_unused_directories_are_removed_and_used_ones_stay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    used = with_directories(spec(), state, tmp_path)
    with_directories(ServerSpec(name="other", annotations="s", command="x"), state, tmp_path)
    Path(used.cwd or "", "memory.json").touch()
    tidy(state)
    assert [place.name for place in state.iterdir()] == ["s.cwd"]
    Path(used.cwd or "", "memory.json").unlink()
    tidy(state)
    assert not state.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("own", [True, False])
async def test_an_error_that_names_a_directory_of_the_servers_own_says_what_that_is(
    own: bool, tmp_path: Path
) -> None:
    home = tmp_path / "one.cwd"
    home.mkdir()
    options = replace(OPTIONS, state=tmp_path if own else tmp_path / "elsewhere")
    failed = f'{{"content":[{{"type":"text","text":"{home}/a: no such file"}}],"isError":true}}'
    lines = {"result": failed, "error": f'{{"code":-32000,"message":"{home}/a: no such file"}}'}
    async with running(scripted(cwd=str(home)), options=options) as servers:
        for key, said in lines.items():
            given: dict[str, Json] = {"bytes": f'{{"jsonrpc":"2.0","id":ID,"{key}":{said}}}\n'}
            answer = await servers.forward(a_call("raw", given))
            assert ("[OWN DIRECTORY: " in str(answer)) is own, key
            assert f"{home}/a: no such file" in str(answer)
        where = await servers.forward(a_call("where"))
        assert str(home) in str(where), "no error"
        assert "[OWN DIRECTORY" not in str(where)
