"""The local parts of a command that run no other program, so that the sandbox holds their effects.

Such a part may stand beside an approved one that reaches out, as in `git fetch origin && git merge
origin/main`, without an approval of its own: it has no use for the network that is open meanwhile,
and the timeline takes back what it changes. The table is short. A program that runs code of the
project, by a script, a hook or an option, is missing on purpose.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.command import Assignment, Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.effects import Part, effect_of_part
from ironcurtain_proxy.shell.family_words import is_free_path
from ironcurtain_proxy.shell.places import is_of_project
from ironcurtain_proxy.shell.reads import LOCAL_NAME, SHOWN_VARIABLES
from ironcurtain_proxy.shell.secrets import names_a_secret

_GIT: Final[Mapping[str, frozenset[str]]] = {
    name: words(options)
    for name, options in {
        "add": "-A --all -u --update -v .",
        "commit": "-m --message -a -am -q --quiet --amend --no-edit --allow-empty -s --signoff",
        "merge": "--no-commit --no-ff --ff --ff-only --squash --no-edit --abort -q --quiet -m",
        "rebase": "--abort --skip --autostash --onto -q --quiet",
        "checkout": "-b -B -q --quiet -t --track --no-track --theirs --ours -f --force --",
        "switch": "-c -C -q --quiet --detach -f --force",
        "restore": "--staged --worktree -S -W -q --quiet --source --",
        "reset": "--hard --soft --mixed --keep -q --quiet --",
        "stash": "-u --include-untracked -k --keep-index -q --quiet -m --message -p",
        "branch": "-d -D -m -M -f --force --set-upstream-to -u -q --quiet",
        "cherry-pick": "--no-commit -n --abort --skip --no-edit",
        "revert": "--no-commit -n --abort --skip --no-edit",
        "clean": "-f -d -x -fd -df -fdx -q",
        "rm": "-r -f -rf -q --quiet --cached --",
        "mv": "-f -k -v",
        "tag": "-a -m -d -f",
    }.items()
}
"""The options of git's sub-commands that run nothing."""
_FILES: Final = words("mkdir touch cp mv rm rmdir")
_FLAGS: Final = re.compile(r"-[A-Za-z]+|--[a-z-]+")
_LETTERS: Final = re.compile(r"-[A-Za-z]+")
_OPERAND: Final = re.compile(r"[^-].*", re.DOTALL)
_STREAM: Final = frozenset({"<&-", ">&-"})


def is_quiet(part: Part) -> bool:
    """Whether a part changes files of the workspace, and can do nothing else."""
    command, place = part.command, part.place
    if part.effect != "local" or not is_of_project(place.directory or "", place):
        return False
    are_quiet = all(_is_quiet_redirection(r, place) for r in command.redirections)
    if not are_quiet or names_a_secret(command.words):
        return False
    if command.assignments:
        return not command.words and all(
            _keeps_an_answer(one, command) for one in command.assignments
        )
    if part.program == "git":
        return place.has_repository and not place.runs_hooks and _is_quiet_git(command.words[1:])
    if part.program in _FILES:
        return _works_on_files(command, place)
    # `echo x > notes.txt` only shows something, but for its redirection.
    alone = replace(command, redirections=())
    return bool(command.words) and effect_of_part(alone, place) == "reads"


def _keeps_an_answer(one: Assignment, command: SimpleCommand) -> bool:
    """Whether an assignment keeps what another part has shown, under a name that steers nothing."""
    is_plain = _ANSWER.fullmatch(one.name) or LOCAL_NAME.fullmatch(one.name)
    is_known = one.value.variables <= command.set_before | SHOWN_VARIABLES
    return bool(is_plain) and is_known and not names_a_secret([one.value])


_ANSWER: Final = re.compile(
    r"TOKEN|(?:[A-Z0-9]+_)*(?:RESP|RESPONSE|RESULT|OUT|OUTPUT|STATUS|CODE|BODY|JSON|OTP|PID|ID"
    r"|PUBKEY|COUNT|HASH|SHA)"
)


def _is_quiet_git(given: Sequence[Word]) -> bool:
    known = _GIT.get(given[0].text or "") if given else None
    if known is None:
        return False
    if any(word.splits and word.variables for word in given):
        return False
    texts = [word.prefix for word in given[1:]]
    return all(
        text.partition("=")[0] in known
        or _OPERAND.fullmatch(text)
        or not text
        or _are_known_letters(text, known)
        for text in texts
    )


def _are_known_letters(text: str, known: frozenset[str]) -> bool:
    """Whether short options joined in one word, such as `-qam`, are all among the known."""
    return bool(_LETTERS.fullmatch(text)) and all(f"-{letter}" in known for letter in text[1:])


def _works_on_files(command: SimpleCommand, place: Place) -> bool:
    if command.words[0].text not in _FILES:
        return False
    rest = command.words[1:]
    operands = [word for word in rest if not word.prefix.startswith("-")]
    flags = [word for word in rest if word.prefix.startswith("-")]
    return (
        bool(operands)
        and all(word.text is not None and _FLAGS.fullmatch(word.text) for word in flags)
        and all(word.text is not None and is_free_path(word, place) for word in operands)
    )


def _is_quiet_redirection(one: Redirection, place: Place) -> bool:
    text = one.target.text
    if one.operator in _STREAM or text == "/dev/null" or one.operator in {"<<", "<<<"}:
        return True
    if one.operator in {">&", "<&"} and (text or "").isdigit():
        return True
    return text is not None and is_free_path(one.target, place)
