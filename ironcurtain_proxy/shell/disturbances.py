"""Changes that one part of a command may make to the meaning of its other parts.

The meaning of `npm test` is looked up before the command runs. In `cp x package.json && npm test`
it has changed by the time that the part runs.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.effects import Part
from ironcurtain_proxy.shell.outward import sub_commands

Disturbance: TypeAlias = Literal["files", "branch", "remotes", "shell"]
"""The changed thing: files of the project, the current branch, the remotes, or the shell itself."""

_PLACERS: Final = words(
    """
    cp mv ln sed tee tar unzip patch dd install rsync curl wget perl awk gawk truncate split
    sqlite3 jq yq gh glab aws gcloud scp
    """
)
"""Programs that write given content to given places."""
_SHELL: Final = words("source . export alias unalias declare typeset local eval hash enable shopt "
                      "exec trap set unset readonly builtin function")  # fmt: skip

_GIT: Final[dict[str, frozenset[Disturbance]]] = {
    **dict.fromkeys(("add", "commit", "push", "fetch", "tag", "rm"), frozenset()),
    **dict.fromkeys(
        ("restore", "stash", "merge", "pull", "rebase", "cherry-pick", "revert", "reset", "mv",
         "apply", "am", "clean"),
        frozenset({"files"}),
    ),
    **dict.fromkeys(("checkout", "switch"), frozenset({"files", "branch"})),
    "branch": frozenset({"branch"}),
}  # fmt: skip
"""The changes by sub-command of git; other sub-commands may change everything."""


def disturbances(parts: Iterable[Part]) -> frozenset[Disturbance]:
    """The changes that these parts may make."""
    return frozenset().union(*[_of(part) for part in parts])


def _of(part: Part) -> frozenset[Disturbance]:
    name = part.program
    if not part.command.words or name in _SHELL:
        activates = name in {"source", "."} and (
            part.command.words[1:2] and part.command.words[1].prefix.endswith("/bin/activate")
        )
        return frozenset() if activates else frozenset({"files", "branch", "remotes", "shell"})
    if name == "git":
        command = "".join(sub_commands(part.command.words[1:])[:1])
        return _GIT.get(command, frozenset({"files", "branch", "remotes"}))
    writes = any(
        one.operator not in {"<", "<<", "<<<", "<&-", ">&-"}
        and one.target.text != "/dev/null"
        and not (one.operator in {">&", "<&"} and (one.target.text or "").isdigit())
        for one in part.command.redirections
    )
    return frozenset({"files"}) if writes or name in _PLACERS else frozenset()
