"""The tools of our own shell, and what it tells the agent."""

import pytest

from ironcurtain_proxy.config.servers.recognition import read_pack, schema_digest
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_shell.running import MOST_OUTPUT, Ended, Output
from ironcurtain_proxy.own_shell.tools import TOOLS, WrongArgumentError, run_arguments, text_of
from tests.tables import table


def test_our_pack_describes_the_tools_as_they_are() -> None:
    schemas = {str(one["name"]): schema_digest(one["inputSchema"]) for one in TOOLS}
    pack = read_pack("own-shell")
    assert pack is not None
    assert pack.schemas == schemas


@pytest.mark.parametrize(
    "given", table("own_shell/tools.arguments_that_do_not_fit_are_refused", list[dict[str, Json]])
)
def test_arguments_that_do_not_fit_are_refused(given: dict[str, Json]) -> None:
    with pytest.raises(WrongArgumentError):
        run_arguments(given, "/")


def test_of_a_long_output_the_beginning_and_the_end_are_kept() -> None:
    output = Output()
    for _ in range(100):
        output.add(b"x" * MOST_OUTPUT)
    output.add(b"the end")
    said = output.take()
    assert len(said) < MOST_OUTPUT + 100
    assert "bytes left out" in said
    assert said.endswith("the end")
    assert output.take() == ""


def test_a_clone_that_fails_by_the_view_is_told_how_it_works() -> None:
    said = "fatal: hardlink different from source at 'b/.git/objects/1f/0a'\n"
    assert "--no-hardlinks" in text_of(said, Ended(status=128))
    assert "--no-hardlinks" not in text_of("fatal: not a repository\n", Ended(status=128))
