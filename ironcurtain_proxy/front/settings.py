"""The addresses of the front, and the principals that may connect.

The principals that may connect, by their tokens.

A file of tokens belongs to the user alone and has a line for each principal: `NAME TOKEN`. Tokens
are compared as a whole and in constant time; they stand in no log and no message.

The addresses and the principals of the front: variables of the environment.

They are taken out of the environment, so that no session and no server finds a token in it.
"""

import re
import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import LONGEST, SHORTEST
from ironcurtain_proxy.private_files import make_private_directory, read_private, write_whole

# --- principals


ONLY: Final = "agent"
"""The principal of a token without a name."""

_MOST_BYTES: Final = 1 << 18
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SCHEME: Final = "bearer"
_PARTS: Final = 2


class Principals:
    """The tokens and their principals."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Keep the digests of the tokens.

        Args:
            names: by token, the name of its principal.
        """
        self._names = {token.encode(): name for token, name in names.items()}

    def __len__(self) -> int:
        return len(self._names)

    def of(self, authorization: str) -> str | None:
        """The principal of a header `Authorization`, or None if there is none."""
        scheme, _, given = authorization.partition(" ")
        token = given.strip().encode("utf-8", "surrogateescape")
        found = None
        # All of them, so that the time does not tell which one was nearly right.
        for known, name in self._names.items():
            if compare_digest(known, token):
                found = name
        return found if scheme.lower() == _SCHEME else None


def read_tokens(path: Path) -> Principals:
    """Read a file of tokens.

    Raises:
        ConfigurationError: it cannot be read or trusted, or a line is no name and token.
    """
    lines = read_private(path, _MOST_BYTES, "token file").decode("utf-8", "replace").splitlines()
    names: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"token file {path}, line {number}"
        if len(words) != _PARTS or _NAME.fullmatch(words[0]) is None:
            raise ConfigurationError(f"{where}: must be a name and a token, with a blank between")
        names[_checked(words[1], where)] = words[0]
    if not names:
        raise ConfigurationError(f"token file {path} has no line `NAME TOKEN`")
    return Principals(names)


def one_token(token: str, where: str) -> Principals:
    """The principals of one token without a name.

    Raises:
        ConfigurationError: it is too short.
    """
    return Principals({_checked(token, where): ONLY})


def make_tokens(path: Path) -> None:
    """Write a file with one new token, for this user alone.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        make_private_directory(path.parent)
        write_whole(path, f"{ONLY} {secrets.token_urlsafe(32)}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"token file {path} cannot be written: {error.strerror}") from None


def _checked(token: str, where: str) -> str:
    if not SHORTEST <= len(token) <= LONGEST or _TOKEN.fullmatch(token) is None:
        raise ConfigurationError(
            f"{where}: a token is {SHORTEST} to {LONGEST} visible characters of ASCII"
        )
    return token


# --- settings


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
    """The file of tokens, or None if the token came in a variable."""


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
