"""Documents that are right, to be made wrong in one place."""

from copy import deepcopy
from pathlib import Path
from typing import TypeVar

import orjson

from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.values import Json

T = TypeVar("T")

RULE: dict[str, Json] = {
    "name": "allow-notes",
    "description": "Let notes be read.",
    "principle": "Notes are for reading.",
    "if": {
        "roles": ["read-path"],
        "server": ["filesystem"],
        "tool": ["read_file"],
        "paths": {"roles": ["read-path"], "within": "~/notes"},
        "domains": {"roles": ["fetch-url"], "allowed": ["example.com"]},
        "lists": [{"roles": ["github-owner"], "allowed": ["acme"], "matchType": "identifiers"}],
    },
    "then": "allow",
    "reason": "Notes may be read.",
}

TOOL: dict[str, Json] = {
    "toolName": "edit_file",
    "serverName": "filesystem",
    "comment": "Edits.",
    "args": {
        "path": {
            "default": ["read-path", "write-path"],
            "when": [{"condition": {"arg": "dryRun", "equals": True}, "roles": ["read-path"]}],
        },
        "dryRun": ["none"],
    },
    "inputSchema": {"type": "object"},
}


def policy(*rules: Json, **extra: Json) -> dict[str, Json]:
    return {"generatedAt": "", "rules": deepcopy(list(rules)), **extra}


def annotations(*tools: Json, server: str = "filesystem") -> dict[str, Json]:
    return {"generatedAt": "", "servers": {server: {"inputHash": "", "tools": list(tools)}}}


def write(path: Path, document: Json) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(document))
    return path


def replaced(document: Json, where: tuple[str | int, ...], value: Json) -> dict[str, Json]:
    """The document with another value in one place."""
    copy = deepcopy(document)
    inner: object = copy
    for part in where[:-1]:
        inner = inner[part]  # type: ignore[index]
    inner[where[-1]] = value  # type: ignore[index]
    assert isinstance(copy, dict)
    return copy


def said(report: Report) -> list[str]:
    """The problems, without the directory of the file."""
    return [
        f"{p.json_path}: {p.message}" + (f" [{p.suggestion}]" if p.suggestion else "")
        for p in report.problems
    ]
