"""The secrets that an entry names, in its headers and for its OAuth client.

Knows placeholders and credentials; imports no library of HTTP, so that `check` can ask it too.
"""

import re
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.remote import OAuthClient, RemoteEndpoint
from ironcurtain_proxy.model.server import ServerSpec

_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def headers_of(spec: ServerSpec, endpoint: RemoteEndpoint) -> Mapping[str, str]:
    """The operator's headers, with the credentials that they name.

    Raises:
        ConfigurationError: a credential is missing, or has characters that no header can hold.
    """
    return {
        name: filled(text, spec.credentials, f'server "{spec.name}", header {name}')
        for name, text in endpoint.headers.items()
    }


def secret_of(own: OAuthClient, credentials: Mapping[str, str], server: str) -> str | None:
    """The secret of the operator's client.

    Raises:
        ConfigurationError: its credential is not there.
    """
    if own.client_secret is None:
        return None
    return filled(own.client_secret, credentials, f'server "{server}", oauth.clientSecret')


def filled(text: str, credentials: Mapping[str, str], where: str) -> str:
    """A text with the credentials that it names as `${NAME}`.

    Raises:
        ConfigurationError: a credential is missing, or has characters that no header can hold.
    """

    def value(found: re.Match[str]) -> str:
        secret = credentials.get(found[1])
        if secret is None:
            raise ConfigurationError(
                f"{where}: {found[1]} is not in serverCredentials of this server"
            )
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigurationError(f"{where}: {found[1]} holds what no header can")
        return secret

    return _PLACEHOLDER.sub(value, text)
