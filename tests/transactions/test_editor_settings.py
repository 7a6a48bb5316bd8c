"""Settings of an editor come in where they say how it looks alone."""

import pytest

from tests.transactions.bench import Workbench, said


@pytest.mark.parametrize(
    ("now", "is_kept"),
    [
        ('{"[c]": {"editor.tabSize": 2}, "task.allowAutomaticTasks": "off"}', False),
        ('{"cSpell.words": ["a"], "task.allowAutomaticTasks": "off"}', False),
        ('{"[c]": {"clangd.path": "x"}, "task.allowAutomaticTasks": "off"}', True),
        ('{"editor.codeActionsOnSave": {}, "task.allowAutomaticTasks": "off"}', True),
        ('{"editor.tabSize": 2}', True),
        ("", True),
    ],
)
def test_settings_of_an_editor_that_change_how_it_looks_come_in(
    w: Workbench, now: str, *, is_kept: bool
) -> None:
    w.write(".vscode/settings.json", '{"task.allowAutomaticTasks": "off"}')
    found = w.run(f"echo '{now}' > .vscode/settings.json; echo x > .vscode/README.md")
    assert said(found.kept_back) == [".vscode/settings.json"] * is_kept
    assert (w.ws / ".vscode/README.md").exists()


def test_a_new_directory_of_an_editor_comes_in_with_what_says_how_it_looks_alone(
    w: Workbench,
) -> None:
    found = w.run(
        "mkdir -p .vscode a/.vscode .claude; cd .vscode;"
        "echo '{\"editor.tabSize\": 2}' > settings.json; cd ..;"
        "echo '{}' > .vscode/tasks.json; echo '{\"git.path\": \"./x\"}' > a/.vscode/settings.json;"
        "echo '{}' > .claude/settings.json"
    )
    assert said(found.kept_back) == [".claude", ".vscode/tasks.json", "a/.vscode/settings.json"]
    assert (w.ws / ".vscode/settings.json").exists()
    assert not (w.ws / ".vscode/tasks.json").exists()
