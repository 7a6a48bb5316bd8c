"""The entry of a task in a file of tasks, with the entries that it leads to.

Where entries cannot be separated, the whole text is the entry. In doubt an entry is too large: then
a change of something else costs a question.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.model.json import Json

_TOKEN: Final = re.compile(r"[\w./:@-]+")
_RUNS_OTHERS: Final = re.compile(
    r"\brun-[sp]\b|npm-run-all|concurrently|wireit|\b(?:lerna|turbo|nx|lage|wsrun)\b|[*$`]"
)


def scripts_entry(text: str, task: str | None) -> str | None:
    """The entry of a script in a `package.json`: itself, `pre…` and `post…`, and those it names.

    Args:
        text: the file.
        task: the script; None: all of them count.

    Returns:
        None: the file cannot be read.
    """
    try:
        document = orjson.loads(text)
    except ValueError:
        return None
    scripts = document.get("scripts", {}) if isinstance(document, dict) else None
    if not isinstance(scripts, dict):
        return None
    chosen: Mapping[str, Json] = scripts if task is None else _reached(scripts, task)
    others = {name: document.get(name) for name in ("config", "wireit", "packageManager")}
    return orjson.dumps([task, chosen, others], option=orjson.OPT_SORT_KEYS).decode()


def _reached(scripts: Mapping[str, Json], task: str) -> Mapping[str, Json]:
    found: dict[str, Json] = {}
    pending = [task]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        said = scripts.get(name)
        found[name] = said
        pending += [other for other in (f"pre{name}", f"post{name}") if other in scripts]
        if isinstance(said, str):
            if _RUNS_OTHERS.search(said):
                return scripts
            pending += [token for token in _TOKEN.findall(said) if token in scripts]
    return found


class EntryRules(Struct, frozen=True):
    """A makefile or a justfile in pieces."""

    text: str
    common: str
    """The text outside of rules."""
    blocks: Mapping[str, str]
    """The rules of each target or recipe as written, by its name."""

    def entry(self, targets: Sequence[str]) -> str:
        """The entry of some targets: their rules, those that they name, and the common text."""
        if not targets or not all(name in self.blocks for name in targets):
            return self.text
        found: dict[str, str] = {}
        pending = list(targets)
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found[name] = self.blocks[name]
            if _CALLS_ITSELF.search(found[name]):
                return self.text
            pending += [token for token in _TOKEN.findall(found[name]) if token in self.blocks]
        return "\0".join([self.common, *(f"{name}\n{found[name]}" for name in sorted(found))])


_CALLS_ITSELF: Final = re.compile(r"\$[({]MAKE|\bg?make\b|\bjust\b|^[^\t ][^:\n]*:[^=\n]*[$%*]",
                                  re.MULTILINE)  # fmt: skip
"""A rule that may call others by a name that is known only when it runs."""

_PLAIN_TARGETS: Final = re.compile(r"[\w./ -]+")
_JUST_HEAD: Final = re.compile(r"@?([A-Za-z_][\w-]*)(?:\s.*)?", re.ASCII)
_MOST_TARGETS: Final = 64
"""The most targets of one rule, whose lines count for each target."""


def make_rules(text: str) -> EntryRules:
    """A makefile in pieces. A rule whose target is computed or a pattern is common to all."""
    return _rules(text, _make_targets, "\t")


def just_rules(text: str) -> EntryRules:
    """A justfile in pieces."""
    return _rules(text, _just_recipe, " \t")


def _make_targets(line: str) -> list[str]:
    """The targets of a rule; none: it is no rule, or one with other than plain targets."""
    head, colon, rest = line.partition(":")
    assigns = rest.lstrip(":").startswith("=")
    names = head.split() if colon and not assigns and _PLAIN_TARGETS.fullmatch(head) else []
    return names if len(names) <= _MOST_TARGETS else []


def _just_recipe(line: str) -> list[str]:
    head, colon, rest = line.partition(":")
    match = None if rest.startswith("=") or not colon else _JUST_HEAD.fullmatch(head)
    return [] if match is None else [match[1]]


def _rules(text: str, targets_of: Callable[[str], list[str]], indent: str) -> EntryRules:
    blocks: dict[str, list[str]] = {}
    common: list[str] = []
    current: list[str] = []
    """The names of the rule that is being read."""
    for line in text.replace("\\\n", "\\ ").split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] not in indent:
            names = targets_of(line)
            if names == [".PHONY"]:
                current = []
                continue
            current = [] if any(name.startswith(".") for name in names) else names
        for name in current:
            blocks.setdefault(name, []).append(line)
        if not current:
            common.append(line)
    return EntryRules(
        text, "\n".join(common), {name: "\n".join(found) for name, found in blocks.items()}
    )


_MAKE_INCLUDE: Final = re.compile(r"^ *[-s]?include\s+(.*)$", re.MULTILINE)
_JUST_IMPORT: Final = re.compile(r"^(?:import\??\s+(.*)|mod\b.*)$", re.MULTILINE)


def make_includes(text: str) -> tuple[str, ...] | None:
    """The files that a makefile includes; None: which these are is only known when it runs."""
    joined = text.replace("\\\n", " ")
    if re.search(r"\$[({](?:eval|file|guile|load)\b|^\s*-?load\b", joined, re.MULTILINE):
        return None
    return _plain_names(line.partition("#")[0] for line in _MAKE_INCLUDE.findall(joined))


def just_includes(text: str) -> tuple[str, ...] | None:
    """The files that a justfile imports; None: which these are is not known."""
    named = [match[1] for match in _JUST_IMPORT.finditer(text)]
    if any(name is None for name in named) or "dotenv-path" in text or "dotenv-filename" in text:
        return None
    return _plain_names(name.strip().strip("'\"") for name in named)


def _plain_names(lines: Iterable[str]) -> tuple[str, ...] | None:
    names = tuple([name for line in lines for name in line.split()])
    return names if all(re.fullmatch(r"[\w./-]+", name) for name in names) else None


class MiseEntry(Struct, frozen=True):
    """The entry of a task in a `mise.toml`."""

    text: str
    files: tuple[str, ...]
    """Files that it names besides."""


def mise_entry(text: str, task: str) -> MiseEntry | None:
    """A task with its dependencies, and all text outside of tasks; None: it cannot be read."""
    import tomllib  # noqa: PLC0415  only where a project uses it

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    tasks = document.pop("tasks", {})
    if not isinstance(tasks, dict) or "task_config" in document or "include" in document:
        return None
    chosen = _tasks_reached(tasks, task)
    environment = document.get("env", {})
    loaded = environment.get("_") if isinstance(environment, dict) else None
    files = [*_texts(loaded), *[name for one in chosen.values() for name in _texts(_file_of(one))]]
    if any(re.search(r"[{*$~]", name) for name in files):
        return None
    return MiseEntry(repr([document, chosen]), tuple(files))


def _tasks_reached(tasks: Mapping[str, object], task: str) -> Mapping[str, object]:
    found: dict[str, object] = {}
    pending = [task]
    while pending:
        name = pending.pop()
        if name in found or (name not in tasks and name != task):
            continue
        said = tasks.get(name)
        found[name] = said
        text = " ".join(_texts(said))
        if "mise" in text or "*" in text:
            return tasks
        pending += _TOKEN.findall(text)
    return found


def _file_of(task: object) -> object:
    return task.get("file") if isinstance(task, dict) else None


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]
