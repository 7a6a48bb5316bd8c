"""What a shell command may need, as capabilities. Pure: no I/O, no clock, no log.

Coarse, and on the careful side: a profile may deny a capability, so nothing that a command may do
is left out. Only of a command that is shown to read is it known that it needs no more.
"""

from typing import Final

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand
from ironcurtain_proxy.shell.effects import CommandEffect
from ironcurtain_proxy.shell.options import words
from ironcurtain_proxy.shell.outward import name_of, sub_commands
from ironcurtain_proxy.shell.secrets import names_a_secret
from ironcurtain_proxy.shell.wrappers import inner_commands

_READS: Final[frozenset[Capability]] = frozenset({"fs.read"})
_RUNS: Final[frozenset[Capability]] = frozenset({"fs.read", "fs.write", "proc.exec"})
_DELETES: Final[Capability] = "fs.delete"
_SECRETS: Final[Capability] = "secrets.access"
_EGRESS: Final[Capability] = "net.egress"

_DELETERS: Final = words(
    """
    rm rmdir unlink shred srm trash truncate mv dd mkfs wipefs fdisk sfdisk parted mkswap rsync
    """
)
_GIT_DELETERS: Final = words("clean rm gc prune reset checkout restore stash")
_OPTIONS: Final = words("-delete --delete --remove --remove-files --remove-source-files")
_SHOW_SECRETS: Final = words("env printenv export declare typeset set security pass op vault gpg")


def needs_of(parsed: ParsedCommand, found: CommandEffect) -> frozenset[Capability]:
    """What a command may need.

    Args:
        parsed: the command.
        found: what it can do where it runs.
    """
    if found.effect == "reads":
        return _READS
    needed = set(_RUNS)
    inner = tuple(inner_commands(parsed))
    loose = frozenset(parsed.every_loose_word())
    if any(part.effect == "outward" for part in found.parts):
        needed.add(_EGRESS)
    if any(map(_deletes, inner)) or loose & _DELETERS:
        needed.add(_DELETES)
    if any(map(_touches_secrets, inner)) or loose & _SHOW_SECRETS:
        needed.add(_SECRETS)
    return frozenset(needed)


def _deletes(command: SimpleCommand) -> bool:
    name = name_of(command)
    rest = command.words[1:]
    return (
        name in _DELETERS
        or (name is not None and name.startswith("mkfs."))
        or (name == "git" and bool(_GIT_DELETERS & set(sub_commands(rest)[:1])))
        or any(word.prefix in _OPTIONS for word in rest)
    )


def _touches_secrets(command: SimpleCommand) -> bool:
    named = (*command.words, *(one.target for one in command.redirections))
    return names_a_secret(named) or name_of(command) in _SHOW_SECRETS
