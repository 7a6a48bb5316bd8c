"""`init` on the public servers as they are installed here, under names that say nothing."""

from pathlib import Path

import orjson
import pytest

from tests.config.presets.test_presets import Place
from tests.e2e.real_servers import npm_server, python_server


@pytest.mark.timeout(180)
def test_public_servers_are_recognised_and_check_agrees(tmp_path: Path) -> None:
    place = Place(tmp_path)
    commands = {
        "one": npm_server("filesystem", str(place.workspace)),
        "two": npm_server("memory"),
        "three": python_server("git"),
    }
    place.say({key: {"command": words[0], "args": words[1:]} for key, words in commands.items()})
    done = place.init("coding", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    checked = place.run("check", "--live", "--seconds", "40", "--json")
    document = orjson.loads(checked.stdout)
    assert document["servers"] == {"one": "filesystem", "two": "memory", "three": "git"}
    # The memory server also offers its graph as a resource, which no preset opens.
    expected = {"sandbox", 'two resources "memory:"'}
    assert [one for one in document["problems"] if one["source"] not in expected] == []
    project = str(place.workspace)
    calls = {
        "read": ("one/read_text_file", {"path": f"{project}/a"}),
        "write": ("one/write_file", {"path": f"{project}/a", "content": "x"}),
        "commit": ("three/git_commit", {"repo_path": project, "message": "x"}),
        "look": ("two/read_graph", {}),
        "keep": ("two/create_entities", {}),
    }
    assert place.decisions({k: v for k, v in calls.items() if k != "keep"}) == {
        "read": "allow",
        "write": "allow",
        "commit": "allow",
        "look": "allow",
    }
