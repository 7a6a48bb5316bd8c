"""The names of files that steer a client are found however they are spelled."""

from ironcurtain_proxy.model.values import STEERING, STEERING_FILES


def test_every_name_is_in_the_spelling_in_which_names_are_compared() -> None:
    names = [*STEERING, *STEERING_FILES, *[name for found in STEERING.values() for name in found]]
    assert [name for name in names if name != name.casefold() or not all(name.split("/"))] == []


def test_the_settings_of_the_agents_whose_configurations_are_found_are_among_them() -> None:
    directories = {".claude", ".cursor", ".vscode", ".zed", ".codex", ".gemini"}
    assert directories <= STEERING.keys()
    assert ".mcp.json" in STEERING_FILES
