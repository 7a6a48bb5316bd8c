"""A server of a client's file that is reached over HTTP, in the proxy's own form.

Clients call its address `url`, `serverUrl`, `httpUrl` or `uri`. A header that only the client can
fill in stays in the client's file and reaches the proxy in `SERVER_CREDENTIALS`.
"""

import re
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.config.clients.known import KnownClient
from ironcurtain_proxy.config.clients.variables import VariableDirectories, filled, is_open
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.forms import fill
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.servers.remote_entry import NETWORK_TYPES, RemoteForm
from ironcurtain_proxy.model.json import Json

ADDRESSES: Final = ("url", "serverUrl", "httpUrl", "uri")
HEADERS: Final = ("headers", "http_headers")
_KINDS: Final = NETWORK_TYPES | {"streamable_http"}
_FROM_ELSEWHERE: Final = ("bearer_token_env_var", "env_http_headers", "headersHelper")


def is_network(entry: Mapping[str, Json]) -> bool:
    """Whether an entry is one of a server that is reached over the network."""
    return entry.get("type") in _KINDS or any(entry.get(name) for name in ADDRESSES)


def network_entry(
    client: KnownClient, entry: Mapping[str, Json], places: VariableDirectories
) -> tuple[dict[str, Json], dict[str, str]] | str:
    """The entry, and the texts that only the client can fill in; or why the server stays."""
    given = next((one for name in ADDRESSES if isinstance(one := entry.get(name), str)), "")
    url = filled(given, client, places)
    headers = next((one for name in HEADERS if (one := entry.get(name))), {})
    why = _why_not(client, entry, url, headers)
    if why or not isinstance(headers, dict):
        return why
    written: dict[str, Json] = {"url": url}
    if entry.get("type") == "sse":
        written["type"] = "sse"
    if isinstance(entry.get("oauth"), dict):
        written["oauth"] = entry["oauth"]
    texts = {name: filled(str(value), client, places) for name, value in headers.items()}
    still_open = {_variable(name): text for name, text in texts.items() if is_open(text, client)}
    if texts:
        written["headers"] = {
            name: f"${{{_variable(name)}}}" if is_open(text, client) else text
            for name, text in texts.items()
        }
    return _mistake(written) or (written, still_open)


def _why_not(client: KnownClient, entry: Mapping[str, Json], url: str, headers: Json) -> str:
    """The reason why a server stays with its client; empty: it can be moved."""
    if is_open(url, client):
        return f"only {client.name} can fill in its address"
    for key in _FROM_ELSEWHERE:
        if entry.get(key):
            return f'its "{key}" takes a header from a place that the proxy cannot read'
    texts = headers.values() if isinstance(headers, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        return "its headers are not understood"
    if any("${" in str(text) and not is_open(str(text), client) for text in texts):
        return "its headers name variables that are not understood"
    return ""


def _variable(header: str) -> str:
    """The name of a header's secret among the server's credentials."""
    return "HEADER_" + re.sub(r"\W", "_", header, flags=re.ASCII).upper()


def _mistake(entry: dict[str, Json]) -> str:
    """The reason why the proxy would refuse an entry; empty: it accepts the entry."""
    report = Report()
    fill(Spot(entry, "", report), RemoteForm, foreign=True)
    errors = [one for one in report.problems if one.severity == "error"]
    if not errors:
        return ""
    return f"its {errors[0].json_path.removeprefix('$.')} {errors[0].message}"
