"""Tasks that files define, and the hosts that a command is known to reach.

The entry of a task comes with the entries that it leads to. Where entries cannot be separated, the
whole text is the entry. In doubt an entry is too large: then a change of something else costs a
question.

The hosts of a family of commands are remotes of git, and registries. They come from the
configuration that the command itself would read; it is not run. If the configuration may name hosts
that cannot be read here, the result is empty: the sandbox then stops the command, and the question
about the next attempt names the host.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import orjson
from msgspec import Struct

from ironcurtain_proxy.facts.arguments import canonical_git_url, git_domain, is_ordinary_remote
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.git_process import beginning_of
from ironcurtain_proxy.facts.pushes import destinations
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import Json, object_of, text_of

_TOKEN: Final = re.compile(r"[\w./:@-]+")
_RUNS_OTHERS: Final = re.compile(
    r"\brun-[sp]\b|npm-run-all|concurrently|wireit|\b(?:lerna|turbo|nx|lage|wsrun)\b|[*$`]"
)


def scripts_entry(text: str, task: str | None) -> str | None:
    """Return the entry of a script in a `package.json`.

    Itself, `pre…` and `post…`, and those it names.

    Args:
        text: the file.
        task: the script, or None if all of them count.

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
    def named_in(name: str) -> list[str] | None:
        text = text_of(scripts.get(name))
        if _RUNS_OTHERS.search(text):
            return None
        return [f"pre{name}", f"post{name}", *_TOKEN.findall(text)]

    found = _closure([task], scripts, named_in)
    return scripts if found is None else {name: scripts.get(name) for name in found}


def _closure(
    start: Iterable[str], known: Container[str], named_in: Callable[[str], list[str] | None]
) -> list[str] | None:
    """Return the entries that are reached from some; None if one may reach any of them."""
    found: dict[str, None] = {}
    pending = list(start)
    while pending:
        name = pending.pop()
        names = () if name in found else named_in(name)
        if names is None:
            return None
        found[name] = None
        pending += [one for one in names if one in known]
    return list(found)


class EntryRules(Struct, frozen=True):
    """A makefile or a justfile in pieces."""

    text: str
    common: str
    """The text outside of rules."""
    blocks: Mapping[str, str]
    """The rules of each target or recipe as written, by its name."""

    def entry(self, targets: Sequence[str]) -> str:
        """Return the entry of some targets.

        Their rules, those that they name, and the common text.
        """
        if not targets or not all(name in self.blocks for name in targets):
            return self.text

        def named_in(name: str) -> list[str] | None:
            block = self.blocks[name]
            return None if _CALLS_ITSELF.search(block) else _TOKEN.findall(block)

        found = _closure(targets, self.blocks, named_in)
        if found is None:
            return self.text
        return "\0".join([self.common, *(f"{name}\n{self.blocks[name]}" for name in sorted(found))])


_CALLS_ITSELF: Final = re.compile(r"\$[({]MAKE|\bg?make\b|\bjust\b|^[^\t ][^:\n]*:[^=\n]*[$%*]",
                                  re.MULTILINE)  # fmt: skip
"""A rule that may call others by a name that is known only when it runs."""

_PLAIN_TARGETS: Final = re.compile(r"[\w./ -]+")
_JUST_HEAD: Final = re.compile(r"@?([A-Za-z_][\w-]*)(?:\s.*)?", re.ASCII)
_MOST_TARGETS: Final = 64
"""The most targets of one rule, whose lines count for each target."""


def _make_targets(line: str) -> list[str]:
    """Return the targets of a rule.

    It is none if it is no rule, or one with other than plain targets.
    """
    head, colon, rest = line.partition(":")
    assigns = rest.lstrip(":").startswith("=")
    names = head.split() if colon and not assigns and _PLAIN_TARGETS.fullmatch(head) else []
    return names if len(names) <= _MOST_TARGETS else []


def _just_recipe(line: str) -> list[str]:
    head, colon, rest = line.partition(":")
    match = None if rest.startswith("=") or not colon else _JUST_HEAD.fullmatch(head)
    return [] if match is None else [match[1]]


def rules_of(text: str, *, is_make: bool) -> EntryRules:
    """Return a makefile or a justfile in pieces.

    A rule whose target is computed or a pattern is common to all.
    """
    targets_of, indent = (_make_targets, "\t") if is_make else (_just_recipe, " \t")
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
    """Return the files that a makefile includes.

    It is None if which these are is only known when it runs.
    """
    joined = text.replace("\\\n", " ")
    if re.search(r"\$[({](?:eval|file|guile|load)\b|^\s*-?load\b", joined, re.MULTILINE):
        return None
    return _plain_names(line.partition("#")[0] for line in _MAKE_INCLUDE.findall(joined))


def just_includes(text: str) -> tuple[str, ...] | None:
    """Return the files that a justfile imports, or None if which these are is not known."""
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
    """Return a task with its dependencies, and all text outside of tasks.

    It is None if it cannot be read.
    """
    import tomllib  # noqa: PLC0415  only where a project uses it

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    tasks = document.pop("tasks", {})
    if not isinstance(tasks, dict) or "task_config" in document or "include" in document:
        return None
    chosen = _tasks_reached(tasks, task)
    loaded = object_of(document.get("env", {})).get("_")
    files = [
        *_texts(loaded),
        *_texts([one.get("file") for one in chosen.values() if isinstance(one, dict)]),
    ]
    if any(re.search(r"[{*$~]", name) for name in files):
        return None
    return MiseEntry(repr([document, chosen]), tuple(files))


def _tasks_reached(tasks: Mapping[str, object], task: str) -> Mapping[str, object]:
    def named_in(name: str) -> list[str] | None:
        text = " ".join(_texts(tasks.get(name)))
        return None if "mise" in text or "*" in text else _TOKEN.findall(text)

    found = _closure([task], tasks, named_in)
    return tasks if found is None else {name: tasks.get(name) for name in found}


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


# --- hosts


_MAX_BYTES: Final = 256 * 1024
_GITHUB: Final = ("api.github.com", "github.com")
_CRATES: Final = ("index.crates.io", "static.crates.io")
_PYPI: Final = ("files.pythonhosted.org", "pypi.org")
_GO: Final = ("proxy.golang.org", "sum.golang.org")
_REGISTRY: Final = re.compile(
    r"^[^\S\n]*+(?:@[\w.-]+:)?registry[^\S\n]*=[^\S\n]*(\S+)[^\S\n]*$", re.MULTILINE
)
_DEFAULT: Final = re.compile(r"^[^\S\n]*+registry[^\S\n]*=", re.MULTILINE)
_HOST: Final = re.compile(r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)(?:/.*)?", re.ASCII)

_Reader: TypeAlias = Callable[[Sequence[str], str], tuple[str, ...]]
"""Gets the directory with all its parents, and the home directory."""


def hosts_of(
    family: Family, directory: str | None, home: str | None, remotes: GitRemotes | None
) -> tuple[str, ...]:
    """Return the hosts, sorted, or empty if none is known. Blocks; never raises.

    Args:
        family: of a part that is known to reach out.
        directory: where it runs, or None if it is not known.
        home: the user's, as the server sees it, or None if it is not known.
        remotes: git as the server would run it.
    """
    words = [*family.program, *family.kept]
    name = words[0].rpartition("/")[2] if words else ""
    if any("=" in one for one in family.around):
        # A variable may name another registry, or another proxy.
        return ()
    if name == "git":
        return () if remotes is None else _of_git(family, remotes)
    if name == "gh":
        return _GITHUB
    read = _READERS.get(name)
    if read is None or not home or not directory or any(w.startswith(_ELSEWHERE) for w in words):
        return ()
    try:
        parts = directory.rstrip("/").split("/")
        return read(["/".join(parts[:length]) for length in range(1, len(parts) + 1)], home)
    except (OSError, ValueError):
        return ()


_ELSEWHERE: Final = (
    *("--registry", "--index", "--extra-index-url", "-i", "--default-index", "--find-links"),
    *("-f", "--git", "--config", "git+", "http:", "https:", "ssh:", "file:", "--source"),
    "--userconfig",
)  # fmt: skip


def _of_git(family: Family, remotes: GitRemotes) -> tuple[str, ...]:
    found = destinations(family, remotes)
    urls = [] if found is None else [canonical_git_url(url) for url in found]
    if not all(map(is_ordinary_remote, urls)):
        return ()
    return _sorted(git_domain(url).partition("/")[0].removesuffix(".") for url in urls)


def _npm(above: Sequence[str], home: str) -> tuple[str, ...]:
    texts = [_text(f"{place}/.npmrc") for place in dict.fromkeys([*above, home])]
    if any("$" in text or "proxy" in text for text in texts):
        return ()
    found = [_HOST.fullmatch(url) for text in texts for url in _REGISTRY.findall(text)]
    hosts = [one[1] for one in found if one is not None]
    if len(hosts) < len(found):
        return ()
    names_default = any(_DEFAULT.search(text) for text in texts)
    return _sorted(hosts if names_default else [*hosts, "registry.npmjs.org"])


def _pip(_above: Sequence[str], home: str) -> tuple[str, ...]:
    places = (f"{home}/.config/pip/pip.conf", f"{home}/.pip/pip.conf", "/etc/pip.conf")
    return () if any(map(_leads_elsewhere, places)) else _PYPI


def _uv(above: Sequence[str], home: str) -> tuple[str, ...]:
    names = ("uv.toml", "pyproject.toml")
    places = [f"{home}/.config/uv/uv.toml", "/etc/uv/uv.toml"]
    places += [f"{one}/{name}" for one in above for name in names]
    return () if any(map(_leads_elsewhere, places)) else _PYPI


def _cargo(above: Sequence[str], home: str) -> tuple[str, ...]:
    names = ("config.toml", "config")
    places = [f"{top}/.cargo/{name}" for top in (*above, home) for name in names]
    return () if any(map(_leads_elsewhere, places)) else _CRATES


def _go(_above: Sequence[str], home: str) -> tuple[str, ...]:
    return () if _leads_elsewhere(f"{home}/.config/go/env") else _GO


def _leads_elsewhere(path: str) -> bool:
    """Return whether a configuration may name another registry. Most say something else.

    What is read wrongly opens no host that the question did not show.
    """
    return _OF_REGISTRIES.search(_text(path)) is not None


_OF_REGISTRIES: Final = re.compile(
    r"index|find-links|registr|proxy|replace-with|sumdb|goprivate", re.IGNORECASE
)


_READERS: Final[Mapping[str, _Reader]] = {
    **dict.fromkeys(("npm", "pnpm", "npx"), _npm), **dict.fromkeys(("pip", "pip3"), _pip),
    **dict.fromkeys(("uv", "uvx"), _uv), "cargo": _cargo, "go": _go,
}  # fmt: skip


def _text(path: str) -> str:
    """Return the text of a configuration, empty if there is none."""
    content = beginning_of(path, _MAX_BYTES + 1) or b""
    if len(content) > _MAX_BYTES:
        raise ValueError(path)
    return content.decode()


def _sorted(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({host for host in hosts if host}))
