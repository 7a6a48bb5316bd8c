"""A client's own server file, converted to entries of this proxy.

Three forms are read: an object with `mcpServers`, an object of entries by name, and a list of
entries with a `name` each. Entries that cannot be started here and unknown keys are left out and
reported.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.config.reading.forms import keys_of_form
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import read_document
from ironcurtain_proxy.config.servers.servers_file import form_of
from ironcurtain_proxy.model.values import Json

_OURSELVES: Final = "ironcurtain-proxy"


class ClientServers(Struct, frozen=True):
    """The servers of a client, and the parts of its file that were left out."""

    entries: dict[str, dict[str, Json]]
    notes: tuple[str, ...] = ()


def read_client_file(path: Path, report: Report) -> ClientServers:
    """Return the servers of a file; a mistake that makes it unusable is in the report."""
    read = read_document(path, report)
    if read is None:
        return ClientServers({})
    root = _by_name(read[1].value)
    if root is None:
        what = (
            "must hold servers by name: an object with mcpServers, or a list with a name for each"
        )
        report.error(path, (), what)
        return ClientServers({})
    entries: dict[str, dict[str, Json]] = {}
    notes: list[str] = []
    for name, entry in root.items():
        if not isinstance(entry, dict):
            report.error(path, (name,), "must be an object with a command")
            continue
        why = _why_left_out(entry)
        if why is not None:
            notes.append(f"{shown(name)} is left out: {why}")
            continue
        entries[name] = {
            key: value for key, value in entry.items() if key in keys_of_form(form_of(entry))
        }
        notes.extend(_oddities(name, entry))
    return ClientServers(entries, tuple(notes))


def _by_name(root: Json) -> Mapping[str, Json] | None:
    """Return the entries by name, from any of the three forms; None: the file has none of them."""
    if isinstance(root, dict) and "mcpServers" in root:
        root = root["mcpServers"]
    if isinstance(root, list):
        listed = [one for one in root if isinstance(one, dict)]
        named = {name: one for one in listed if isinstance(name := one.get("name"), str)}
        if len(named) < len(root):
            return None
        return {
            name: {key: value for key, value in one.items() if key != "name"}
            for name, one in named.items()
        }
    if not isinstance(root, dict):
        return None
    return {name: entry for name, entry in root.items() if not name.startswith("_")}


def _oddities(name: str, entry: dict[str, Json]) -> Iterator[str]:
    unknown = [key for key in entry if key not in {*keys_of_form(form_of(entry)), "disabled"}]
    if unknown:
        yield f"{shown(name)}: {', '.join(map(shown, unknown))} means nothing here"
    if "${" in str(entry.get("args")) + str(entry.get("env")):
        yield f"{shown(name)}: variables in args and env are not expanded here"


def _why_left_out(entry: dict[str, Json]) -> str | None:
    if entry.get("disabled") is True:
        return "it is disabled there"
    command = entry.get("command")
    words = [command, *_texts(entry.get("args"))]
    if any(PurePosixPath(str(word)).name == _OURSELVES for word in words):
        return "it is this proxy"
    return None


def _texts(args: Json) -> list[str]:
    return [str(one) for one in args] if isinstance(args, list) else []
