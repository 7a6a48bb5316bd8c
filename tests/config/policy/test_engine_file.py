"""A `decide` directory, and the original's own files."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.model.policy import ProtectedPath
from ironcurtain_proxy.model.values import Json, RealPath
from tests.config.files import RULE, TOOL, annotations, policy, write

CORPUS = Path(__file__).parents[3] / "../shared/corpora/decisions"


def directory(path: Path, engine: Json) -> Path:
    write(path / "compiled-policy.json", policy(RULE))
    write(path / "tool-annotations.json", annotations(TOOL))
    write(path / "engine.json", engine)
    return path


def test_an_engine_is_read_with_everything_it_says(tmp_path: Path) -> None:
    engine = load_engine(
        directory(
            tmp_path,
            {
                "allowedDirectory": "/srv/../srv/box",
                "protectedPaths": ["/srv/box/keys", "~/x/"],
                "domainAllowlists": {"git": ["GitHub.com"]},
                "trustedServers": ["memory"],
                "home": "/home/ada",
                "containerWorkspaceDir": "/workspace",
            },
        ),
        Path("/elsewhere"),
    )
    box = RealPath(("srv", "box"))
    loaded = engine.loaded
    assert loaded.policy.workspace == box
    # As in the original, also for what lies inside the workspace.
    assert loaded.policy.protected_paths == (
        ProtectedPath(path=RealPath(("srv", "box", "keys")), unless_within=box),
        ProtectedPath(path=RealPath(("home", "ada", "x")), unless_within=box),
    )
    assert loaded.policy.protected_names == ()
    assert loaded.policy.domain_allowlists == {"git": {"github.com"}}
    assert loaded.policy.trusted_servers == {"memory"}
    assert list(loaded.annotations) == [("filesystem", "edit_file")]
    assert engine.home == Path("/home/ada")
    assert engine.container_workspace_dir == "/workspace"
    assert loaded.policy.rules[0].paths is not None
    assert str(loaded.policy.rules[0].paths.within) == "/home/ada/notes"


def test_null_and_missing_mean_nothing_was_said(tmp_path: Path) -> None:
    engine = load_engine(directory(tmp_path, {"allowedDirectory": None}), Path("/h"))
    assert engine.loaded.policy.workspace is None
    assert engine.home == Path("/h")
    assert engine.container_workspace_dir is None
    (tmp_path / "engine.json").unlink()
    assert load_engine(tmp_path, Path("/h")).loaded.policy.protected_paths == ()


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r'protectedpaths: unknown key .*"protectedPaths"'):
        load_engine(directory(tmp_path, {"protectedpaths": []}), Path("/h"))


def test_every_file_that_is_needed_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        load_engine(tmp_path, Path("/h"))
    assert len(caught.value.problems) == 2


@pytest.mark.skipif(not CORPUS.exists(), reason="the decision data is not beside the project")
def test_the_files_of_the_original_load_as_they_are(tmp_path: Path) -> None:
    configurations = orjson.loads((CORPUS / "configs.json").read_bytes())["configs"]
    for name, configuration in configurations.items():
        path = tmp_path / name
        servers: dict[str, Json] = {}
        for file in configuration["annotations"]:
            servers.update(orjson.loads((CORPUS / file).read_bytes())["servers"])
        write(path / "tool-annotations.json", {"generatedAt": "", "servers": servers})
        policies = (CORPUS / configuration["policy"]).read_text("utf-8")
        (path / "compiled-policy.json").write_text(policies.replace("@ROOT@", str(tmp_path)))
        if configuration["dynamicLists"]:
            lists = (CORPUS / configuration["dynamicLists"]).read_bytes()
            (path / "dynamic-lists.json").write_bytes(lists)
        engine = orjson.dumps(configuration["engine"]).replace(b"@ROOT@", str(tmp_path).encode())
        (path / "engine.json").write_bytes(engine)
        loaded = load_engine(path, Path("/h")).loaded
        assert len(loaded.policy.rules) == len(orjson.loads(policies)["rules"]), name
