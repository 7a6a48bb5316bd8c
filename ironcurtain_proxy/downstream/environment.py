"""The environment of a server, and the masking of secrets in what it says.

A server gets the variables that every program needs. The rest of the proxy's environment holds the
secrets of all servers and is not passed on. Its output comes in pieces, so that a secret may be cut
in two: `Masker` keeps the beginning of one until the rest has come.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote
from zlib import crc32

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import lazy, words

BASE: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TERM", "SHELL", "TMPDIR"}
)
"""The variables for every server, besides `LC_*`."""

CERTIFICATES: Final = words(
    """
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    NODE_USE_SYSTEM_CA GIT_SSL_CAINFO AWS_CA_BUNDLE UV_NATIVE_TLS UV_SYSTEM_CERTS UV_OFFLINE
    UV_NO_INDEX UV_INDEX_STRATEGY PIP_CERT PIP_NO_INDEX NPM_CONFIG_CAFILE NPM_CONFIG_CA
    NPM_CONFIG_STRICT_SSL NPM_CONFIG_OFFLINE NPM_CONFIG_PREFER_OFFLINE NODE_USE_ENV_PROXY
    """
)
"""Variables on certificates and network availability: no secrets."""

NETWORK: Final = words(
    """
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL
    UV_DEFAULT_INDEX UV_FIND_LINKS UV_INSECURE_HOST UV_PYTHON_INSTALL_MIRROR PIP_INDEX_URL
    PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_PROXY NPM_CONFIG_REGISTRY
    NPM_CONFIG_PROXY NPM_CONFIG_HTTPS_PROXY NPM_CONFIG_NOPROXY
    """
)
"""Variables on network proxies. A URL with credentials in it is a secret."""

_EITHER_CASE: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NPM_CONFIG_")
"""Prefixes of names that programs also read in lower case."""

_MAY_HOLD_CREDENTIALS: Final = frozenset("@?#")
"""Characters that only credentials or a query put into such a URL."""

GIT: Final = "git"
"""The name of git servers in policy and annotations."""

_SECRET_NAME: Final = lazy(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_PASSWORD: Final = lazy(r"://[^\s/@:]*:([^\s/@]+)@")
"""That of a URL, as of a proxy or a database."""
_SHORTEST_SECRET: Final = 4
"""The least characters of a masked value: with `MAX_TOKENS=5`, every 5 would be masked."""

_PYTHON: Final = lazy(r"uvx|uv|pipx|(?:python|pypy)[0-9.]*")
_MOST_LINE: Final = 256
_CONTAINER_COMMANDS: Final = frozenset({"docker", "podman"})
_VARIABLE: Final = lazy(r"[A-Za-z_][A-Za-z0-9_]*")


def child_environment(spec: ServerSpec, parent: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of one server.

    The base, certificates and the way to the network, then its `env`, then its credentials. A git
    server also gets a setting of git (see below).

    Values are literal: `${HOME}` stays `${HOME}`.
    """
    base = {name: value for name, value in parent.items() if name in BASE or name.startswith("LC_")}
    own = {**spec.env, **spec.credentials}
    environment = {**base, **_network(parent, own), **_steady(spec, parent), **own}
    return _with_guarded_git(environment) if spec.annotations == GIT else environment


def _network(parent: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return variables for certificates and proxies, except those that the server's entry sets."""
    said = {_known_as(name) for name in own}
    return {
        name: value
        for name, value in parent.items()
        if _known_as(name) not in said
        and (
            _known_as(name) in CERTIFICATES
            or (_known_as(name) in NETWORK and _MAY_HOLD_CREDENTIALS.isdisjoint(value))
        )
    }


def _steady(spec: ServerSpec, parent: Mapping[str, str]) -> dict[str, str]:
    """Return what lets a Python server describe its tools alike at each start.

    Pins hold a tool back whose description changed, and `mcp-shell-server` writes a set into its
    own. The seed is not the same for everybody: what is hashed may come from elsewhere.
    """
    if not (_PYTHON.fullmatch(spec.command.rpartition("/")[2]) or _is_script(spec.command)):
        return {}
    return {"PYTHONHASHSEED": str(crc32(f"{parent.get('HOME')} {spec.name}".encode()))}


def _is_script(command: str) -> bool:
    """Return whether a program is a script of Python, as `uv` and `pipx` install them."""
    try:
        with open(command, "rb") as file:  # noqa: PTH123  at each start
            return b"python" in file.readline(_MOST_LINE)
    except OSError:
        return False


def _known_as(name: str) -> str:
    upper = name.upper()
    return upper if upper.startswith(_EITHER_CASE) else name


def _with_guarded_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Make git accept only directories named `.git` as repositories.

    An agent that writes files could create a bare repository whose configuration names commands,
    and a harmless `git status` in it would run them (git 2.38, `safe.bareRepository`).
    """
    count = environment.get("GIT_CONFIG_COUNT", "")
    place = int(count) if count.isdecimal() else 0
    return {
        **environment,
        f"GIT_CONFIG_KEY_{place}": "safe.bareRepository",
        f"GIT_CONFIG_VALUE_{place}": "explicit",
        "GIT_CONFIG_COUNT": str(place + 1),
    }


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """Return the values that must not be written to a log, longest first."""
    said = [value for name, value in spec.env.items() if _SECRET_NAME.search(name)]
    said += [] if spec.remote is None else spec.remote.headers.values()
    for password in _PASSWORD.findall("\n".join(spec.env.values())):
        said += password, unquote(password)
    named = {value for value in said if len(value) >= _SHORTEST_SECRET}
    secrets = named | {value for value in spec.credentials.values() if value}
    return tuple(sorted(secrets, key=len, reverse=True))


def missing_container_variables(
    spec: ServerSpec, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the unset variables that `docker run -e NAME` would pass on."""
    if spec.command.rpartition("/")[2] not in _CONTAINER_COMMANDS:
        return ()
    return tuple(name for name in _handed_on(spec.args) if name not in environment)


def _handed_on(args: Iterable[str]) -> Iterator[str]:
    rest = iter(args)
    for argument in rest:
        if argument == "--":
            return
        if argument in ("-e", "--env"):
            argument = "--env=" + next(rest, "")  # noqa: PLW2901  both spellings, one case
        if argument.startswith("--env=") and _VARIABLE.fullmatch(argument[6:]):
            yield argument[6:]


# --- masking


MARK: Final = b"***REDACTED***"
"""The replacement for a secret."""

_SHORTEST_LINE: Final = 12
"""The least bytes of a line of a multi-line secret that is masked by itself."""


class Masker:
    """Replaces secrets in a stream, including secrets that are cut in two.

    A possible beginning of a secret is held back until the next bytes decide.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        whole = {secret.encode("utf-8", "surrogateescape") for secret in secrets if secret}
        # A key in PEM form is printed line by line, with other text between.
        lines = {
            line.strip() for secret in whole if b"\n" in secret for line in secret.split(b"\n")
        }
        lines = {line for line in lines if len(line) >= _SHORTEST_LINE}
        # The longest first: of two secrets of which one begins the other, the longer is meant.
        self._secrets = sorted(whole | lines, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add a piece, and return the bytes that are certain."""
        if not self._secrets:
            return data
        data = self._held + data
        cut = self._undecided(data, 0)
        if not any(secret in data for secret in self._secrets):
            self._held = data[cut:]
            return data[:cut]
        return self._replace(data, cut)

    def finish(self) -> bytes:
        """End the stream, and return the bytes that were held back."""
        rest, self._held = self._held, b""
        return self._pattern.sub(MARK, rest) if self._secrets else rest

    def _replace(self, data: bytes, cut: int) -> bytes:
        out: list[bytes] = []
        position = 0
        for found in self._pattern.finditer(data):
            if found.start() >= cut:
                break
            out += (data[position : found.start()], MARK)
            position = found.end()
            if position > cut:
                cut = self._undecided(data, position)
        out.append(data[position:cut])
        self._held = data[cut:]
        return b"".join(out)

    def _undecided(self, data: bytes, start: int) -> int:
        """Find where the longest end of `data` that may become a secret starts, from `start` on."""
        earliest = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(start, len(data) - len(secret) + 1))
            while 0 <= at < earliest:
                if secret.startswith(data[at:]):
                    earliest = at
                at = data.find(secret[:1], at + 1)
        return earliest
