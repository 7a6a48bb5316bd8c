"""The argument of a tool that holds a shell command, recognised by schema and description.

Only a command for the local shell counts. A text for another interpreter or another machine
would be judged by its meaning here, so a tool that runs such a text is `unknown`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.config.annotating.words import WORDS, words_of
from ironcurtain_proxy.model.json import Json

NO_TEXT: Final = frozenset({"boolean", "number", "integer", "null"})
"""The types of values that name nothing."""
_TYPES: Final = NO_TEXT | {"string", "array", "object"}
_MOST_DEPTH: Final = 8


def types_of(schema: Mapping[str, Json], depth: int = _MOST_DEPTH) -> frozenset[str]:
    """The JSON types that a value may have; none if the schema names none or nests too deeply."""
    if depth == 0:
        return frozenset()
    said = schema.get("type", [])
    names = said if isinstance(said, list) else [said]
    found = {one.lower() for one in names if isinstance(one, str)}
    if any(not isinstance(one, str) for one in names) or not found <= _TYPES:
        # The check of calls leaves such a type out, so that any value fits.
        return frozenset()
    for word in ("anyOf", "oneOf"):
        inner = schema.get(word)
        for one in inner if isinstance(inner, list) else ():
            types = types_of(one, depth - 1) if isinstance(one, Mapping) else frozenset()
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)


def is_closed_choice(schema: Mapping[str, Json]) -> bool:
    """Return whether a value is one of a list of the schema."""
    choice = schema.get("enum")
    return "const" in schema or (isinstance(choice, list) and bool(choice))


COMMAND_ARGUMENTS: Final = WORDS["shell_commands"]
"""Names of arguments that hold a shell command, without their capitals and underscores."""
_RUNS: Final = re.compile(
    r"\b(?:run|runs|running|exec|execs|execute|executes|executing|execution|invoke|invokes|launch"
    r"|spawn|spawns|start|starts)\b",
    re.IGNORECASE,
)
_COMMAND: Final = re.compile(
    r"\b(?:commands?|command[ -]?lines?|shell|bash|zsh|sh|terminal|process(?:es)?|programs?"
    r"|scripts?)\b",
    re.IGNORECASE,
)
_SHELL: Final = re.compile(r"\b(?:shell|bash|zsh|sh|terminal|command[ -]?line)\b", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(
    r"\b(?:remote(?:ly)?|ssh)\b"
    r"|\b(?:in|inside|into|on|within|against|via|through|using) (?:[\w-]+ ){0,3}"
    r"(?:adb|browser|clusters?|containers?|databases?|devices?|docker|emulator|kubectl|kubernetes"
    r"|pods?|virtual machine|vms?)\b",
    re.IGNORECASE,
)
"""Words for machines other than the local one. A program named only as an example does not count.
"""
_OTHERS: Final = WORDS["interpreters"]


@dataclass(frozen=True, slots=True)
class RunArgument:
    """The argument whose text a tool runs."""

    argument: str
    is_shell: bool
    """Whether the text is a command of the local shell."""


def runs(tool: Mapping[str, Json], properties: Mapping[str, Json]) -> RunArgument | None:
    """Return the argument whose text a tool runs, or None if no argument seems to hold one.

    Args:
        tool: its object of `tools/list`.
        properties: of its input schema.
    """
    name = str(tool.get("name", ""))
    about = " ".join(
        [*words_of(name), str(tool.get("title", "")), str(tool.get("description", ""))]
    )
    for argument, schema in properties.items():
        plain = "".join(words_of(argument))
        if plain not in COMMAND_ARGUMENTS | WORDS["run_texts"] or not isinstance(schema, Mapping):
            continue
        types = types_of(schema)
        if not types or not types <= {"string", "array", "null"}:
            continue
        text = f"{about} {schema.get('description', '')}"
        says_so = bool(_RUNS.search(text) and (_COMMAND.search(text) or plain in COMMAND_ARGUMENTS))
        if not says_so and not (plain in COMMAND_ARGUMENTS and _SHELL.search(text)):
            continue
        return RunArgument(argument, _is_shell(name, text, certain=plain in COMMAND_ARGUMENTS))
    return None


def _is_shell(name: str, text: str, *, certain: bool) -> bool:
    if _ELSEWHERE.search(text) or not _OTHERS.isdisjoint(words_of(name)):
        return False
    if _SHELL.search(text):
        return True
    return certain and _OTHERS.isdisjoint(re.findall(r"[a-z0-9]+", text.lower()))
