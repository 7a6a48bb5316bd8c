"""The addresses and the principals of the front: variables of the environment.

They are taken out of the environment, so that no session and no server finds a token in it.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.front.principals import Principals, make_tokens, one_token, read_tokens

SOCKET: Final = "PROXY_SOCKET_PATH"
PORT: Final = "PROXY_TCP_PORT"
PORT_FILE: Final = "PROXY_PORT_FILE"
TOKEN: Final = "PROXY_TOKEN"  # noqa: S105  the name of a variable
TOKENS_FILE: Final = "PROXY_TOKENS_FILE"
STANDARD_FILE: Final = "http-tokens"
"""The file of tokens in `~/.ironcurtain`; made with one token if no other file is named."""

_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """The addresses and the principals of the front."""

    socket: Path | None
    port: int | None
    """The port; 0: any free one; None: no TCP."""
    port_file: Path | None
    public_names: Sequence[str] = ()
    """Hosts under which a reverse proxy shows the front."""
    principals: Principals = field(repr=False)
    tokens_file: Path | None
    """The file of tokens; None: the token came in a variable."""


def take_settings(
    environ: MutableMapping[str, str], state: Path, public_names: Sequence[str] = ()
) -> FrontSettings:
    """Take the settings out of the environment. Makes a file of tokens if there is none.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    said = {name: environ.pop(name, "").strip() for name in (SOCKET, PORT, PORT_FILE)}
    token, named = environ.pop(TOKEN, "").strip(), environ.pop(TOKENS_FILE, "").strip()
    port = _port(said[PORT]) if said[PORT] else None
    if port is None and not said[SOCKET]:
        port = 0
    if port is None and said[PORT_FILE]:
        raise ConfigurationError(f"{PORT_FILE}: there is no port, because {SOCKET} is set alone")
    file: Path | None = None
    if token and named:
        raise ConfigurationError(f"{TOKEN} and {TOKENS_FILE}: set one of them")
    if token:
        principals = one_token(token, TOKEN)
    else:
        file = _path(named, TOKENS_FILE) or state / STANDARD_FILE
        if not named and not file.exists() and not file.is_symlink():
            make_tokens(file)
        principals = read_tokens(file)
    return FrontSettings(
        socket=_path(said[SOCKET], SOCKET),
        port=port,
        port_file=_path(said[PORT_FILE], PORT_FILE),
        public_names=tuple(public_names),
        principals=principals,
        tokens_file=file,
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > _LARGEST_PORT:
        raise ConfigurationError(f"{PORT}: {text[:20]!r} is no port; 0 stands for any that is free")
    return int(text)


def _path(text: str, variable: str) -> Path | None:
    if not text:
        return None
    if not text.startswith("/"):
        raise ConfigurationError(f"{variable}: must be an absolute path")
    return Path(text)
