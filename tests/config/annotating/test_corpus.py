"""Proposals for the 213 tools of five public servers, beside what people wrote down of them.

The servers' own annotations are what is right. A proposal is more careful where it has more roles,
is `unclear`, or names a place where the annotation names a thing.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.config.annotating.propose import propose, works_on_github
from ironcurtain_proxy.model.values import Json

CORPUS: Final = Path(__file__).parents[4] / "shared/corpora/decisions/annotations/shipped.json"
PLACES: Final = {
    **dict.fromkeys(("read-path", "write-path", "delete-path"), "path"),
    **dict.fromkeys(("write-history", "delete-history"), "path"),
    **dict.fromkeys(("fetch-url", "git-remote-url"), "URL"),
    **dict.fromkeys(("command", "sql"), "command"),
}
NAMES: Final = dict.fromkeys(("github-owner", "github-repo", "branch-name"), "identifier")
LEAST: Final = 0.9

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")


@cache
def compared() -> tuple[int, tuple[tuple[str, str, bool], ...]]:
    """How many tools there are; of each argument its kind, its name, and whether it is right."""
    servers = orjson.loads(CORPUS.read_bytes())["servers"]
    found = [one for server, entry in servers.items() for one in _of_server(server, entry["tools"])]
    return sum(len(entry["tools"]) for entry in servers.values()), tuple(found)


def _of_server(server: str, tools: list[dict[str, Json]]) -> Iterator[tuple[str, str, bool]]:
    raw = [
        {
            "name": tool["toolName"],
            "description": tool["comment"],
            "inputSchema": tool["inputSchema"],
        }
        for tool in tools
    ]
    is_github = works_on_github(raw, server)
    for tool, listed in zip(tools, raw, strict=True):
        proposal = propose(listed, is_github=is_github)
        arguments = tool["args"]
        assert isinstance(arguments, dict)
        for name, spec in arguments.items():
            right = _roles(spec)
            kinds = {kind for role in right if (kind := (PLACES | NAMES).get(role))}
            if kinds:
                each = proposal.arguments[name].each(name)
                proposed = {str(role) for _, one in each for role in one.roles}
                where = f"{server}/{tool['toolName']} {name}"
                yield min(kinds), where, _is_careful(right, proposed)


def _roles(spec: Json) -> set[str]:
    if isinstance(spec, list):
        return {str(role) for role in spec}
    assert isinstance(spec, dict)
    cases = spec.get("when", [])
    assert isinstance(cases, list)
    several = [spec["default"], *[case["roles"] for case in cases if isinstance(case, dict)]]
    return {str(role) for roles in several if isinstance(roles, list) for role in roles}


def _is_careful(right: set[str], proposed: set[str]) -> bool:
    if right - {"none"} <= proposed or "unclear" in proposed:
        return True
    is_name = right <= NAMES.keys() | {"none"}
    return is_name and bool(proposed & ({"identifier"} | PLACES.keys()))


def test_nine_of_ten_arguments_are_proposed_right_or_more_carefully() -> None:
    count, found = compared()
    assert count == 213
    right = Counter(kind for kind, _, is_right in found if is_right)
    of_all = Counter(kind for kind, _, _ in found)
    print({kind: f"{right[kind]} of {number}" for kind, number in of_all.items()})  # noqa: T201
    assert right.total() / of_all.total() >= LEAST


def test_no_path_url_or_command_is_proposed_less_carefully() -> None:
    _, found = compared()
    wrong = [where for kind, where, is_right in found if kind != "identifier" and not is_right]
    assert wrong == []
