"""Optional libraries, and the extra that installs each.

The base installation has the kernel, servers and agents over HTTP, the command line, the review
screen and the page in a browser. This module imports no library; it looks whether one is installed,
and its error message names the extra to install.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError

Extra: TypeAlias = Literal["llm", "engine", "postgres", "fleet", "desk", "otel"]
"""An extra of the distribution, as in `pip install 'ironcurtain-proxy[llm]'`."""

MODULES: Final[Mapping[Extra, tuple[str, ...]]] = MappingProxyType(
    {
        "llm": ("litellm", "openai", "httpx"),
        "engine": ("sqlalchemy",),
        "postgres": ("sqlalchemy", "psycopg"),
        "fleet": ("cryptography", "securesystemslib", "tuf", "urllib3"),
        "desk": ("httpx", "joserfc", "sqlalchemy", "psycopg"),
        "otel": ("opentelemetry.sdk", "opentelemetry.exporter"),
    }
)
"""The modules that the product imports from each extra, or parts of those that the base brings.
`pyproject.toml` declares the distributions."""

_NAME: Final = "ironcurtain-proxy"
_POSTGRESQL: Final = "postgres"


class MissingExtra(Struct, frozen=True):
    """A setting whose library is not installed."""

    setting: str
    """The key in the configuration, such as `autoApprove`."""
    extra: Extra
    stops: bool
    """Whether the proxy refuses to start; otherwise it starts without the feature."""

    @property
    def what(self) -> str:
        """What is missing, in words."""
        return _what(self.setting, self.extra)

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return shlex.join(installing(self.extra))

    def __str__(self) -> str:
        """Return one line: what is missing, and the command that installs it."""
        return f"{self.what}: {self.remedy}"


def require(extra: Extra, who: str) -> None:
    """Raise if an extra is not installed.

    Args:
        extra: what has to be installed.
        who: the command or the setting that needs it.

    Raises:
        ConfigurationError: a library of the extra is not installed. Says what to install.
    """
    why = missing(extra, who)
    if why:
        raise ConfigurationError(why)


def missing(extra: Extra, who: str) -> str:
    """Return the missing packages of an extra, and the command that installs them; empty: none."""
    return f"{_what(who, extra)}: {shlex.join(installing(extra))}" if _absent(extra) else ""


def installing(extra: Extra) -> tuple[str, ...]:
    """Return the command that adds an extra to the environment that this program runs in.

    `pip` of another environment would install it where this program does not look. Environments
    that `uv` makes have no pip of their own; uv would search an index for this distribution, so it
    is given the requirements.
    """
    if _is_installed("pip"):
        return (sys.executable, "-m", "pip", "install", f"{_NAME}[{extra}]")
    return ("uv", "pip", "install", "--python", sys.executable, *_requirements(extra))


def lacks(settings: Settings) -> Iterator[MissingExtra]:
    """Yield the settings whose libraries are not installed."""
    # A missing model leaves escalations to people. A missing store would leave the engine without a
    # record, and a missing reviewer or notification is one that the operator relies on.
    if settings.auto_approve.enabled and _absent("llm"):
        yield MissingExtra("autoApprove", "llm", stops=False)
    if settings.telemetry.enabled and _absent("otel"):
        yield MissingExtra("telemetry", "otel", stops=True)
    for setting, extra in _of_engine(settings):
        if _absent(extra):
            yield MissingExtra(setting, extra, stops=True)


def store_extra(url: str | None) -> Extra:
    """Return the extra for a store at this address; None: a SQLite file of the default name."""
    return "postgres" if url is not None and url.startswith(_POSTGRESQL) else "engine"


def _of_engine(settings: Settings) -> Iterator[tuple[str, Extra]]:
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return
    yield "auto_confirm", store_extra(config.store_url)
    for spec in config.reviewers:
        if spec.kind == "model":
            yield f'auto_confirm.reviewers: "{spec.name}"', "llm"


def _absent(extra: Extra) -> tuple[str, ...]:
    return tuple([name for name in MODULES[extra] if not _is_installed(name)])


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _requirements(extra: Extra) -> Iterator[str]:
    """Yield what the extra requires, as in `httpx>=0.28`, with the extras that it consists of."""
    # Read only where something is missing; both are slow to import.
    from importlib.metadata import requires  # noqa: PLC0415

    from packaging.requirements import Requirement  # noqa: PLC0415

    for line in requires(_NAME) or ():
        one = Requirement(line)
        if one.marker is None or not one.marker.evaluate({"extra": extra}):
            continue
        if one.marker.evaluate({"extra": ""}):
            continue
        if one.name != _NAME:
            yield f"{one.name}{one.specifier}"
        for other in MODULES.keys() & one.extras:
            yield from _requirements(other)


def _what(who: str, extra: Extra) -> str:
    *others, last = _absent(extra)
    names, verb = (f"{', '.join(others)} and {last}", "are") if others else (last, "is")
    return f"{who} needs {names}, which {verb} not installed"
