"""Write the packs from what the servers listed, by the proposer and the reviewed overrides.

    scripts/packs/build.py --scratch DIR --date 2026-11-23 [NAME …]

`overrides.json` has, for a server, the tools whose proposal was looked at and is not right: their
`effect`, the roles of their `args`, or their `policy`. What is not overridden is as proposed.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

import orjson

from ironcurtain_proxy.config.annotating.propose import propose, works_on_github
from ironcurtain_proxy.config.servers.recognition import schema_digest
from ironcurtain_proxy.model.values import Json


class _Found(TypedDict):
    """What was fetched of a server."""

    version: str
    tools: list[dict[str, Json]]


class _Override(TypedDict, total=False):
    """What was looked at and is not as proposed."""

    effect: str
    args: dict[str, Json]
    policy: str


HERE: Final = Path(__file__).parent
PACKS: Final = HERE.parents[1] / "ironcurtain_proxy" / "config" / "packs"


def main() -> int:
    """Write the packs of all servers that were fetched."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    servers = orjson.loads((HERE / "servers.json").read_bytes())
    overrides = orjson.loads((HERE / "overrides.json").read_bytes())
    for name in options.names or sorted(servers):
        listed = options.scratch / name / "tools.json"
        if listed.exists():
            found = orjson.loads(listed.read_bytes())
            document = packed(name, servers[name], found, overrides.get(name, {}), options.date)
            data = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (PACKS / "shipped" / f"{name}.json").write_bytes(data)
            sys.stdout.write(f"{name}: {len(found['tools'])} tools\n")
    index: dict[str, str] = {}
    for file in sorted((PACKS / "shipped").glob("*.json")):
        index[orjson.loads(file.read_bytes())["pack"]["package"]] = file.stem
    data = orjson.dumps(index, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (PACKS / "index.json").write_bytes(data)
    return 0


def packed(
    name: str,
    server: Mapping[str, str],
    found: _Found,
    overrides: Mapping[str, _Override],
    date: str,
) -> dict[str, object]:
    """The document of one pack."""
    is_github = works_on_github(found["tools"], name)
    tools: list[dict[str, object]] = []
    schemas: dict[str, str] = {}
    policy: dict[str, list[str]] = {"allow": [], "ask": [], "neverRemembered": []}
    for tool in found["tools"]:
        proposal = propose(tool, is_github=is_github)
        said = overrides.get(tool["name"], {})
        effect = said.get("effect", proposal.effect)
        args = {one: what.as_json() for one, what in proposal.arguments.items()}
        args.update(said.get("args", {}))
        entry: dict[str, object] = {"toolName": tool["name"], "args": args}
        if effect is not None:
            entry["effect"] = effect
        tools.append(entry)
        schemas[tool["name"]] = schema_digest(tool.get("inputSchema"))
        policy[said.get("policy") or _answer(effect, args)].append(tool["name"])
    registry = "npm" if "npm" in server else "pypi"
    return {
        "pack": {
            "package": f"{registry}:{server[registry]}",
            "version": found["version"],
            "date": date,
            "obtained": "started",
            "policy": policy,
            "schemas": schemas,
        },
        "servers": {name: {"tools": tools}},
    }


def _answer(effect: str | None, args: Mapping[str, object]) -> str:
    """A tool that only reads, and reads no file or address that it is given, may be allowed."""
    if effect == "destroys":
        return "neverRemembered"
    reaches = any(role in orjson.dumps(args).decode() for role in _REACHES)
    return "allow" if effect == "reads" and not reaches else "ask"


_REACHES: Final = ('"fetch-url"', '-path"', '"command"', '"sql"')

if __name__ == "__main__":
    raise SystemExit(main())
