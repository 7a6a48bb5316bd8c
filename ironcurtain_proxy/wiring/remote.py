"""Servers over HTTP, checked against the policy and this machine before the start."""

from collections.abc import Iterator, Mapping
from typing import Final

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.condition_reading import host_matches
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec

_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")


def refuse_closed_hosts(settings: Settings, policy: Policy) -> None:
    """Refuse URLs that the policy closes, and secrets that the credentials lack.

    Raises:
        ConfigurationError: a rule denies the host, or a secret is not there.
    """
    for spec, endpoint in _remote(settings):
        rule = next((one for one in policy.rules if _closes(one, spec, endpoint)), None)
        if rule is not None:
            raise ConfigurationError(
                f'server "{spec.name}": rule {rule.name} of the policy denies {endpoint.host}: '
                "change the rule, or remove the server"
            )
        from ironcurtain_proxy.downstream.remote.logins import (  # noqa: PLC0415  seldom needed
            headers_of,
            secret_of,
        )

        headers_of(spec, endpoint)
        if endpoint.oauth is not None:
            secret_of(endpoint.oauth, spec.credentials, spec.name)


def remote_hosts(settings: Settings) -> Mapping[str, str]:
    """The hosts of the servers that are reached over HTTP, by server."""
    return {spec.name: endpoint.host for spec, endpoint in _remote(settings)}


def unused_proxies(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """The servers for which the environment names a proxy that is not used, in words."""
    named = next((name for name in _PROXIES if environ.get(name)), None)
    bare = [spec.name for spec, endpoint in _remote(settings) if endpoint.proxy is None]
    if named is not None and bare:
        yield (
            f"{named} is not used for {', '.join(bare)}: name the proxy in the server's entry "
            '("proxy"), if it is the only way out'
        )


def _remote(settings: Settings) -> Iterator[tuple[ServerSpec, RemoteEndpoint]]:
    for spec in settings.servers:
        if spec.remote is not None:
            yield spec, spec.remote


def _closes(rule: Rule, spec: ServerSpec, endpoint: RemoteEndpoint) -> bool:
    """Whether a rule denies every call to the host of a server."""
    return (
        rule.effect == "deny"
        and rule.tools is None
        and (rule.servers is None or spec.annotations in rule.servers)
        and rule.domains is not None
        and host_matches(endpoint.host, rule.domains.allowed)
    )
