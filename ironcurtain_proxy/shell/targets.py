"""Targets of a command outside the machine: hosts, remotes and branches, clusters, registries.

For the person who is asked. A target that is missing here is still shown in the command itself.
"""

import re
from collections.abc import Iterator
from typing import Final

from ironcurtain_proxy.model.command import SimpleCommand
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.effects import CommandEffect
from ironcurtain_proxy.shell.outward import name_of, sub_commands

_URL: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?(?P<host>[^/:\s?#'\"]+)", re.IGNORECASE
)
_COPY: Final = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!//)")
_NAMED: Final = {
    "--context": "context", "--kube-context": "context", "-n": "namespace",
    "--namespace": "namespace", "--profile": "profile", "--project": "project",
    "--repo": "repository", "-R": "repository", "--registry": "registry", "--region": "region",
    "--index-url": "registry", "-H": "host", "--host": "host", "-h": "host", "--app": "app",
}  # fmt: skip
_CLUSTERS: Final = words(
    "kubectl helm oc aws gcloud az gh glab npm pip docker psql mysql redis-cli flyctl fly"
)


def targets_of(effect: CommandEffect) -> tuple[str, ...]:
    """The targets that the outward parts of a command name, in their order."""
    found: dict[str, None] = {}
    for part in effect.parts:
        if part.effect == "outward":
            found.update(dict.fromkeys(_targets(part.command)))
    return tuple(found)


def _targets(command: SimpleCommand) -> Iterator[str]:
    name = name_of(command) or ""
    texts = [word.text or word.prefix for word in command.words[1:]]
    for text in texts:
        url = _URL.search(text)
        if url is not None:
            yield f"host {url['host']}"
    if name == "git":
        path = sub_commands(command.words[1:])
        if path[:1] in (["push"], ["fetch"], ["pull"]) and "://" not in " ".join(path[1:2]):
            yield f"remote {' '.join(path[1:3]) or 'of the branch'}"
    elif name in {"ssh", "scp", "sftp", "rsync"}:
        hosts = [_COPY.match(text) for text in texts if not text.startswith("-")]
        yield from (f"host {one['host']}" for one in hosts if one is not None)
        if name in {"ssh", "sftp"}:
            yield from (f"host {t.rpartition('@')[2]}" for t in sub_commands(command.words[1:])[:1])
    elif name in _CLUSTERS:
        yield from _options(texts)


def _options(texts: list[str]) -> Iterator[str]:
    for at, text in enumerate(texts):
        option, equals, value = text.partition("=")
        if option in _NAMED:
            given = value if equals else "".join(texts[at + 1 : at + 2])
            if given:
                yield f"{_NAMED[option]} {given}"
