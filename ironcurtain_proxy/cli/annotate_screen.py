"""The questions of `annotate` on a terminal: Enter accepts a tool, a key changes it."""

from dataclasses import replace
from typing import Final

from ironcurtain_proxy.cli.annotate_showing import DOES, OPENS, shown_tool
from ironcurtain_proxy.cli.init_talk import Talk, clean
from ironcurtain_proxy.config.annotating.described import DescribedServer, DescribedTool
from ironcurtain_proxy.config.annotating.proposal import Proposed
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect

_KEYS: Final = "abcdefghijklmnopqrstuvwxyz"
_ROLES: Final[tuple[ArgumentRole, ...]] = tuple(OPENS)
_EFFECTS: Final[tuple[ToolEffect | None, ...]] = tuple(DOES)


def reviewed(server: DescribedServer, talk: Talk) -> DescribedServer:
    """The server with the operator's changes to the proposal.

    Raises:
        ConfigurationError: the input ended; nothing was written.
    """
    kept: list[DescribedTool] = []
    rest = False
    for tool in (*server.tools, *(server.prompts or ())):
        one, rest = (tool, True) if rest else _one(tool, talk)
        kept.append(one)
    count = len(server.tools)
    prompts = None if server.prompts is None else tuple(kept[count:])
    return replace(server, tools=tuple(kept[:count]), prompts=prompts)


def _one(tool: DescribedTool, talk: Talk) -> tuple[DescribedTool, bool]:
    """One tool with the operator's changes, and whether the operator accepts all other tools."""
    while True:
        for line in shown_tool(tool):
            talk.say(line)
        effect = "" if tool.is_prompt else " change the effect (e),"
        key = talk.ask(f"accept (y), change an argument (c),{effect} accept all (a)",
                       ("y", "c", *(("e",) if effect else ()), "a"))  # fmt: skip
        match key:
            case "c" if tool.proposal.arguments:
                tool = _with_role(tool, talk)
            case "e":
                choice = _choose([f"{one or '?'}: {DOES[one]}" for one in _EFFECTS], talk)
                proposal = replace(tool.proposal, effect=_EFFECTS[choice], why="your word")
                tool = replace(tool, proposal=proposal)
            case _:
                return tool, key == "a"


def _with_role(tool: DescribedTool, talk: Talk) -> DescribedTool:
    names = [*tool.proposal.arguments]
    name = names[_choose([clean(one, 60) for one in names], talk)]
    role = _ROLES[_choose([f"{one}: {OPENS[one]}" for one in _ROLES], talk)]
    changed = {**tool.proposal.arguments, name: Proposed(roles=(role,), why="your word")}
    return replace(tool, proposal=replace(tool.proposal, arguments=changed))


def _choose(lines: list[str], talk: Talk) -> int:
    lines = lines[: len(_KEYS)]
    for key, line in zip(_KEYS, lines, strict=False):
        talk.say(f"  {key}  {line}")
    return _KEYS.index(talk.ask("which", tuple(_KEYS[: len(lines)])))
