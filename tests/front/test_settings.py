"""The variables of the front, of which each that cannot be used is named."""

from pathlib import Path

import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.front.guard import take_settings


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PROXY_TCP_PORT": "http"}, "PROXY_TCP_PORT: 'http' is no port"),
        ({"PROXY_SOCKET_PATH": "mcp.sock"}, "PROXY_SOCKET_PATH: must be an absolute path"),
        ({"PROXY_TOKEN": "short"}, "a token is 32 to 4096 visible characters"),
        ({"PROXY_TOKEN": "t" * 32, "PROXY_TOKENS_FILE": "/x"}, "set one of them"),
        ({"PROXY_TOKENS_FILE": "/dev/null"}, "is not a regular file"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        take_settings(variables, tmp_path)
    assert words in str(raised.value)
    assert "short" not in str(raised.value)
