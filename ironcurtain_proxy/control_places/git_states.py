"""Whether a waiting rebase, cherry-pick or revert runs nothing when the user goes on with it.

`git rebase --continue` reads its orders from files in `rebase-merge`, and `git cherry-pick
--continue` from files in `sequencer`. A file that is not listed here, or a line that is not
understood, may name a program: a command, a merge strategy, a program that signs. Of a waiting `git
am` and of a bisect nothing is listed.
"""

import re
from collections.abc import Mapping
from typing import Final

_HEX: Final = rb"[0-9a-f]{4,64}"
_ORDER: Final = re.compile(
    rb"[ \t]*(?:"
    rb"(?:pick|p|reword|r|edit|e|squash|s|fixup|f|drop|d|revert)(?: -[cC])? " + _HEX + rb"(?: .*)?"
    rb"|(?:label|l|reset|t) [A-Za-z0-9][A-Za-z0-9._/-]*(?: #.*)?"
    rb"|update-ref refs/heads/[A-Za-z0-9][A-Za-z0-9._/-]*"
    rb"|noop|break|b|#.*|"
    rb")[ \t]*"
)
_NUMBER: Final = re.compile(rb"-?[0-9]{0,12}\n?")
_ID: Final = re.compile(rb"(?:" + _HEX + rb")?\n?")
_IDS: Final = re.compile(rb"(?:" + _HEX + rb"(?: " + _HEX + rb")?\n)*")
_REFERENCE: Final = re.compile(rb"(?:refs/[A-Za-z0-9._/+@-]+|detached HEAD)\n?")
_EMPTY: Final = re.compile(rb"(?:t|true|1)?\n?")
_TEXT: Final = re.compile(rb".*", re.DOTALL)
_AUTHOR: Final = re.compile(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^']|'\\''|'\\!')*'\n?){0,3}")
_OPTIONS: Final = re.compile(
    rb"\[options\]\n(?:\t(?:no-commit|edit|allow-empty|allow-empty-message|drop-redundant-commits|"
    rb"keep-redundant-commits|signoff|record-origin|allow-ff|allow-rerere-auto|mainline) = "
    rb"(?:true|false|[0-9]+)\n)*"
)

_ORDERS: Final = ("rebase-merge/git-rebase-todo", "rebase-merge/done", "sequencer/todo")
_ORDERS_BACKUP: Final = "rebase-merge/git-rebase-todo.backup"
_FILES: Final[Mapping[str, re.Pattern[bytes]]] = {
    **{
        f"rebase-merge/{name}": _NUMBER
        for name in ("msgnum", "end", "allow_rerere_autoupdate", "rewritten-pending-count")
    },
    **{
        f"rebase-merge/{name}": _ID
        for name in ("onto", "orig-head", "amend", "stopped-sha", "autostash", "squash-onto")
    },
    **{
        f"rebase-merge/{name}": _EMPTY
        for name in (
            *("interactive", "quiet", "verbose", "drop_redundant_commits", "dropped"),
            *("keep_redundant_commits", "no-reschedule-failed-exec", "signoff"),
            *("cdate_is_adate", "ignore_date", "implicit-rewritten"),
        )
    },
    "rebase-merge/rewritten-list": _IDS,
    "rebase-merge/rewritten-pending": _IDS,
    "rebase-merge/head-name": _REFERENCE,
    "rebase-merge/author-script": _AUTHOR,
    "rebase-merge/message": _TEXT,
    "rebase-merge/message-squash": _TEXT,
    "rebase-merge/message-fixup": _TEXT,
    "rebase-merge/current-fixups": re.compile(rb"(?:(?:fixup|squash) " + _HEX + rb"\n?)*"),
    "rebase-merge/patch": _TEXT,
    "rebase-merge/update-refs": re.compile(
        rb"(?:refs/heads/[A-Za-z0-9._/-]+\n" + _HEX + rb"\n" + _HEX + rb"\n)*"
    ),
    "sequencer/head": _ID,
    "sequencer/abort-safety": _ID,
    "sequencer/opts": _OPTIONS,
}


def is_harmless_state(name: str, content: bytes) -> bool:
    """Return whether a file of a waiting operation makes git run nothing.

    Args:
        name: its path in the directory of git.
        content: the file's.
    """
    if name in _ORDERS or name == _ORDERS_BACKUP:
        return all(_ORDER.fullmatch(line) for line in content.split(b"\n"))
    pattern = _FILES.get(name)
    return pattern is not None and pattern.fullmatch(content) is not None
