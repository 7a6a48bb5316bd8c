"""Hosts as the reference reads them: whether a value leads to an allowed one."""

import ipaddress
import re

from ironcurtain_proxy.model.request import UrlValue, Value

NOT_PUBLIC = (
    *("localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home"),
    *("lan", "onion", "invalid", "home.arpa"),
    *("nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "vcap.me", "lacolhost.com"),
)


def domains(value: Value) -> tuple[str, ...]:
    return value.domains if isinstance(value, UrlValue) else (value.text,)


def leads_to(value: Value, patterns: frozenset[str]) -> bool:
    if isinstance(value, UrlValue) and not value.ordinary:
        patterns = frozenset(p for p in patterns if p != "*")
    return all(allowed(d, patterns) for d in domains(value))


def allowed(domain: str, patterns: frozenset[str]) -> bool:
    return any(pattern_matches(domain, pattern) for pattern in patterns)


def pattern_matches(domain: str, pattern: str) -> bool:
    host = domain.split("/", maxsplit=1)[0]
    if pattern == "*":
        return public(host)
    if pattern.startswith("*."):
        return host == pattern[2:] or host.endswith(pattern[1:])
    return (domain if "/" in pattern else host) == pattern


def public(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    else:
        return False
    name = host.lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_.-]+", name, re.ASCII) or "." not in name:
        return False
    if re.fullmatch(r"[0-9.]+", name):
        return False
    for label in name.split("."):
        if not 1 <= len(label) <= 63:
            return False
    return not any(name == end or name.endswith("." + end) for end in NOT_PUBLIC)
