"""A profile as srt's settings, passed without a file on the disk.

srt ignores unknown keys, so a misspelt key would be a hole: only settings built here go to it. A
sealed file in memory cannot be changed, and is gone with its processes.
"""

import fcntl
import os
import re
from collections.abc import Mapping
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.wrapper import WRAPPER

_SHARED_TEMPORARY: Final = "/tmp/claude"  # noqa: S108  srt's own, which all its sandboxes share
_DOMAIN: Final = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*",
    re.ASCII | re.IGNORECASE,
)
_SEALS: Final = ("F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE")


class SandboxSettings(Struct, frozen=True):
    """The settings of srt."""

    fields: Mapping[str, Json]

    @classmethod
    def of(
        cls, profile: SandboxProfile, gate: int | None = None, *, is_private: bool = False
    ) -> "SandboxSettings":
        """The settings of a profile.

        Args:
            profile: what is let.
            is_private: nothing of the machine's `/tmp` is shown.
            gate: the port of the proxy that stands in the place of srt's; None: srt's.

        Raises:
            ConfigurationError: a domain that srt would not take as it was meant.
        """
        for domain in (*profile.allowed_domains, *profile.denied_domains):
            _check_domain(domain)
        return cls(
            {
                "network": {
                    "allowedDomains": [*profile.allowed_domains],
                    "deniedDomains": [*profile.denied_domains],
                    **({} if gate is None else {"httpProxyPort": gate, "socksProxyPort": gate}),
                },
                "filesystem": {
                    "denyRead": [
                        *profile.deny_read,
                        *([_SHARED_TEMPORARY] if is_private else ()),
                    ],
                    "allowRead": [*profile.allow_read],
                    "allowWrite": [*profile.allow_write],
                    "denyWrite": [*profile.deny_write, _SHARED_TEMPORARY],
                },
                "bwrapPath": str(WRAPPER),
            }
        )


def sealed(settings: SandboxSettings) -> int:
    """A descriptor to read the settings from; nobody can change them. The caller closes it.

    Raises:
        OSError: there is no memory, or no descriptor left.
    """
    return sealed_content(orjson.dumps(settings.fields))


def sealed_content(content: bytes) -> int:
    """Return a descriptor to read some content from, which nobody can change. The caller closes it.

    Raises:
        OSError: there is no memory, or no descriptor left.
    """
    descriptor = os.memfd_create("settings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        seals = 0
        for name in _SEALS:
            seals |= getattr(fcntl, name)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_domain(domain: str) -> None:
    bare = domain.removeprefix("*.")
    wide = domain.startswith("*.") and "." not in bare
    if _DOMAIN.fullmatch(domain) is not None and "." not in domain and domain != "localhost":
        raise ConfigurationError(
            f'sandbox.network: "{domain}" has no dot, and the sandbox takes no such host: use its '
            "full name, such as HOST.internal"
        )
    if _DOMAIN.fullmatch(domain) is None or wide:
        raise ConfigurationError(
            f'sandbox.network: "{domain}" is no host: write example.com or *.example.com, '
            "without scheme, port or path"
        )
