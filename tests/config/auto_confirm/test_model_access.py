"""A key goes to the provider that it is of."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.settings import ModelAccess, load_settings
from ironcurtain_proxy.model.values import Json
from tests.config.files import write


def access(tmp_path: Path, model: str, **keys: Json) -> ModelAccess:
    reviewer: Json = {"name": "wrapper_claude", "kind": "model", "modelId": model, **keys}
    config: Json = {
        "mcpServers": {"x": {"command": "x"}},
        "anthropicApiKey": "of-anthropic",
        "openaiApiKey": "of-openai",
        "autoApprove": {"modelId": "anthropic:small", "apiBase": "http://127.0.0.1:1"},
        "auto_confirm": {"reviewers": [reviewer]},
    }
    settings = load_settings({"HOME": str(tmp_path)}, write(tmp_path / "c.json", config))
    assert settings.auto_confirm is not None
    assert "of-openai" not in repr(settings)
    return settings.model_access(settings.auto_confirm.reviewers[0])


@pytest.mark.parametrize(
    ("model", "key", "base"),
    [
        ("anthropic:large", "of-anthropic", "http://127.0.0.1:1"),
        ("openai:large", "of-openai", None),
        ("google:large", "", None),
    ],
)
def test_a_reviewer_has_the_key_of_its_own_provider(
    tmp_path: Path, model: str, key: str, base: str | None
) -> None:
    assert access(tmp_path, model) == ModelAccess(key, base)


def test_a_key_of_the_reviewer_s_own_comes_first(tmp_path: Path) -> None:
    found = access(tmp_path, "openai:large", env={"API_KEY": "own"}, apiBase="http://127.0.0.1:2")
    assert found == ModelAccess("own", "http://127.0.0.1:2")
