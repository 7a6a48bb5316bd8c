"""The findings of `init`, as text and as JSON. Not a command itself."""

import difflib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.cli.init_dialogue import clean, masked_arguments
from ironcurtain_proxy.cli.init_installing import own_machine
from ironcurtain_proxy.cli.init_wants import opens_network
from ironcurtain_proxy.config.clients.finding import ClientFile, FoundClients
from ironcurtain_proxy.config.clients.plan import FileChange, MovingServer
from ironcurtain_proxy.config.clients.remote_entries import ADDRESSES
from ironcurtain_proxy.config.clients.text_format import table_at
from ironcurtain_proxy.config.packs.pack import PackNeeds
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.sandbox.installed import NotInstalled
from ironcurtain_proxy.sandbox.replaced_launchers import installation_of, is_confined, look_up
from ironcurtain_proxy.shell.launchers import container_image

_SHORTEST_SECRET: Final = 6


class Surroundings(Struct, frozen=True):
    """What is told of servers besides their entries, by their names behind the proxy."""

    unconfined: Mapping[str, str]
    """Why a server runs in no sandbox, and what helps."""
    needs: Mapping[str, PackNeeds]
    """What a known server needs of its sandbox."""


def found_lines(
    found: FoundClients, moving: Sequence[MovingServer], around: Surroundings, home: Path
) -> Iterator[str]:
    """A paragraph for each file: the servers that move behind the proxy, and those that stay."""
    for file in found.files:
        here = [one for one in moving if one.file is file]
        left = [one for table in file.tables for one in table.left]
        ours = any(table.ours for table in file.tables)
        if not here and not left and not ours:
            continue
        yield ""
        yield f"{file.client.name}  {short(file.path, home)}"
        if ours:
            yield "  starts the proxy already"
        for one in here:
            yield from _server_lines(one, around)
        for stays in left:
            yield f"  {clean(stays.name)}: stays as it is: {clean(stays.why)}"
    for unusable in found.unusable:
        yield ""
        yield f"{short(unusable.path, home)}: {clean(unusable.why)}: stays as it is"


def _server_lines(moving: MovingServer, around: Surroundings) -> Iterator[str]:
    entry = moving.taken.entry
    renamed = "" if moving.name == moving.taken.name else f" (as {clean(moving.name)})"
    yield f"  {clean(moving.taken.name)}{renamed}: {clean(_place(entry))}"
    env = entry.get("env", entry.get("headers"))
    names = [*(env if isinstance(env, dict) else {})]
    if names:
        what = "headers" if "url" in entry else "variables"
        yield f"    its {what} move to the proxy's own file: {clean(', '.join(names))}"
    if kept := moving.taken.open_variables:
        yield f"    {clean(', '.join(kept))} still comes from {moving.file.client.name}"
    if moving.taken.unused:
        yield f"    ignored: {clean(', '.join(moving.taken.unused))}"
    if "sandbox" in entry:
        yield f"    its sandbox, as you wrote it: {clean(orjson.dumps(entry['sandbox']).decode())}"
    needs = around.needs.get(moving.name, PackNeeds())
    if needs.hosts and not (opens_network(entry) or moving.file.is_project):
        yield f"    its sandbox lets it reach {', '.join(needs.hosts)}, where all its work goes"
    if needs.advice and "sandbox" not in entry:
        yield from wrap(needs.advice, 96, initial_indent="    ", subsequent_indent="    ")
    if remedy := around.unconfined.get(moving.name):
        yield f"    {clean(remedy, 300)}"


def _place(entry: Mapping[str, Json]) -> str:
    """The command line of a server, or its address without the query, which may hold a secret."""
    if "url" in entry:
        address = str(entry["url"])
        return address.partition("?")[0] + ("?…" if "?" in address else "") + "  (over the network)"
    args = entry.get("args")
    words = [str(one) for one in (args if isinstance(args, list) else [])]
    return shlex.join([str(entry["command"]), *masked_arguments(words)])


def unconfined(settings: Settings) -> dict[str, str]:
    """The servers that cannot start in a sandbox as they are, each with a text on what helps."""
    machine = own_machine(settings)
    found: dict[str, str] = {}
    for spec in settings.servers:
        if spec.remote is not None:
            continue
        image = container_image(spec.command, spec.args)
        if image is not None:
            found[spec.name] = f"runs in a container of {image}, in no sandbox of the proxy"
        elif isinstance(look_up(spec, machine), NotInstalled):
            held = "starts in no" if is_confined(spec) else "runs without a"
            found[spec.name] = f"{held} sandbox until it is installed: {installation_of(spec)}"
    return found


def installations(settings: Settings) -> list[str]:
    """The commands that install servers, so that a sandbox can hold them."""
    machine = own_machine(settings)
    return [
        installation_of(spec)
        for spec in settings.servers
        if spec.remote is None and isinstance(look_up(spec, machine), NotInstalled)
    ]


def diff_lines(change: FileChange, home: Path) -> Iterator[str]:
    """The change of a file as a unified diff, without the values of variables."""
    name = short(change.file.path, home)
    secrets = sorted(_secrets(change.file), key=len, reverse=True)
    before, after = change.file.text.splitlines(), change.after.splitlines()
    for line in difflib.unified_diff(
        before, after, name, f"{name} (behind the proxy)", lineterm=""
    ):
        hidden = line
        for secret in secrets:
            hidden = hidden.replace(secret, "***")
        yield clean(hidden, 500)


def _secrets(file: ClientFile) -> set[str]:
    """The values of servers' variables, headers and settings, and the secrets of arguments."""
    document = file.form.parse(file.text)
    entries = [
        one for table in file.tables for one in (table_at(document, table.place) or {}).values()
    ]
    tables = [one for entry in entries if isinstance(entry, dict) for one in entry.values()]
    found = {text for one in tables if isinstance(one, dict) for text in _texts(one)}
    found |= {
        text.partition("?")[2]
        for entry in entries
        if isinstance(entry, dict)
        for key in ADDRESSES
        if isinstance(text := entry.get(key), str)
    }
    found |= {
        text
        for entry in entries
        if isinstance(entry, dict) and isinstance(args := entry.get("args"), list)
        for text in _masked_in([str(one) for one in args])
    }
    long = {text for text in found if len(text) >= _SHORTEST_SECRET}
    return long | {orjson.dumps(text).decode()[1:-1] for text in long}


def _masked_in(words: list[str]) -> Iterator[str]:
    """What `masked_arguments` changes of arguments, from where it begins to differ."""
    for word, masked in zip(words, masked_arguments(words), strict=True):
        differs = [
            at for at, (one, other) in enumerate(zip(word, masked, strict=False)) if one != other
        ]
        if word != masked:
            yield word[differs[0] if differs else 0 :]


def _texts(value: Json) -> Iterator[str]:
    match value:
        case dict():
            for one in value.values():
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)
        case str():
            yield value
        case _:
            pass


def found_json(found: FoundClients, moving: Sequence[MovingServer]) -> Json:
    """The findings of `found_lines` as JSON."""
    files: list[Json] = [_file_json(file, moving) for file in found.files]
    unusable: list[Json] = [{"file": str(one.path), "why": one.why} for one in found.unusable]
    return files + unusable


def _file_json(file: ClientFile, moving: Sequence[MovingServer]) -> Json:
    here = [one for one in moving if one.file is file]
    return {
        "client": file.client.id,
        "file": str(file.path),
        "servers": [{"name": one.taken.name, "behind": one.name} for one in here],
        "left": [{"name": one.name, "why": one.why} for table in file.tables for one in table.left],
        "startsProxy": any(table.ours for table in file.tables),
    }


def short(path: Path, home: Path) -> str:
    """A path with `~` for the home directory."""
    text = str(path)
    return f"~{text.removeprefix(str(home))}" if text.startswith(f"{home}{os.sep}") else text
