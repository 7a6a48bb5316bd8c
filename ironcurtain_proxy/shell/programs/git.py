"""git. Pure: no I/O, no clock, no log.

A repository's own configuration can name programs (a pager, a diff driver, a file system monitor);
only options that ask for them are refused here.
"""

from typing import Final

from ironcurtain_proxy.shell.rules import (
    NETWORK,
    NOTHING,
    Acts,
    Commands,
    Reads,
    Rule,
    commands,
    options,
)

_ANY: Final = Reads()
_SHOWS: Final = Reads(refused=options("--output --ext-diff --textconv --show-signature"))
_LISTS: Final = options(
    "-l --list --contains --no-contains --merged --no-merged --points-at --show-current"
)
_REFS: Final = options(
    "-a -r -v -q -i -n --all --remotes --verbose --sort --format --column --no-column --color"
    " --no-color --abbrev --no-abbrev --ignore-case"
)
_SETS: Final = options("-d -m --delete --create-reflog")
_CONFIG: Final = options(
    "--global --local --system --worktree --show-origin --show-scope --name-only -z --null --type"
    " --bool --int --path --get --get-all --get-regexp --get-urlmatch --list -l --default"
)

_SENDS: Final = Acts(capabilities=NETWORK, reason="it reaches another repository")
_WRITES: Final = Acts(capabilities=frozenset({"fs.write"}), reason="it changes the repository")

GIT: Final = Commands(
    flags=options("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects"),
    values=options("-C"),
    alone=Reads(capabilities=NOTHING),
    commands={
        **commands(
            """
            status|blame|annotate|ls-files|ls-tree|rev-parse|rev-list|merge-base|for-each-ref
            show-ref|count-objects|describe|name-rev|var|check-ignore|check-attr|cherry|version
            get-tar-commit-id|show-branch|shortlog|verify-pack|show-index|help|check-mailmap
            stash list
            worktree list
            submodule status
            bisect log
            sparse-checkout list
            lfs status|env|ls-files
            notes list|show
            rerere status|diff|remaining
            """,
            _ANY,
        ),
        **commands("log|show|diff|whatchanged|diff-files|diff-index|diff-tree|range-diff", _SHOWS),
        "stash show": _SHOWS,
        "cat-file": Reads(refused=options("--textconv --filters")),
        "grep": Reads(refused=options("-O --open-files-in-pager --textconv --ext-grep")),
        "reflog": Reads(
            refused=options("--output --ext-diff --textconv"),
            denied_words=options("expire delete drop write"),
        ),
        "branch": Reads(
            allowed=_REFS | options("--contains --no-contains --merged --no-merged --points-at"
                                    " --list --show-current"),
            needs_for_operands=_LISTS - {"-l"},
            abbreviated=False,
        ),
        "tag": Reads(
            allowed=_LISTS | _REFS - {"-a", "-r", "-v"},
            needs_for_operands=_LISTS,
            abbreviated=False,
        ),
        "remote": Reads(allowed=options("-v --verbose"), operands=0),
        "remote get-url": _ANY,
        "config": Reads(
            allowed=_CONFIG,
            needs=_LISTS | options("--get --get-all --get-regexp --get-urlmatch"),
            abbreviated=False,
        ),
        **commands("config get|list", Reads(refused=options("--file -f"), abbreviated=False)),
        "symbolic-ref": Reads(refused=_SETS, operands=1),
        "replace": Reads(allowed=options("-l --list --format"), needs=options("-l --list")),
        "hash-object": Reads(refused=options("-w")),
        "archive": Reads(refused=options("-o --output --remote --exec")),
        "format-patch": Reads(
            refused=options("-o --output-directory --output --ext-diff --textconv"),
            needs=options("--stdout"),
        ),
        **commands("push|pull|fetch|clone|ls-remote|submodule", _SENDS),
        **commands("add|commit|merge|rebase|checkout|switch|restore|reset|revert|cherry-pick|rm|mv"
                   "|clean|stash|apply|am|init|gc|prune", _WRITES),
    },
)  # fmt: skip

GIT_TABLE: Final[dict[str, Rule]] = {"git": GIT}
