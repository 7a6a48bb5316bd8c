"""The help of every command."""

import pytest

from ironcurtain_proxy.cli import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_ends_with_the_exit_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert f"ironcurtain-proxy {command}" in shown
    assert "examples" in shown
    assert "exit status: 0" in shown.partition("examples")[2]
