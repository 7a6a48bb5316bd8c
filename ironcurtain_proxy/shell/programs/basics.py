"""Programs of every Unix, and some common additions. Pure: no I/O, no clock, no log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.programs.effects import CONNECTS
from ironcurtain_proxy.shell.programs.scripts import check_awk, check_sed
from ironcurtain_proxy.shell.programs.sql import DUCKDB, MYSQL, PSQL, SQLITE
from ironcurtain_proxy.shell.rules import (
    FILES,
    NOTHING,
    Acts,
    Checked,
    Commands,
    Reads,
    Rule,
    commands,
    options,
)

_READ: Final = [
    "cat",
    "tac",
    "head",
    "tail",
    "wc",
    "ls",
    "dir",
    "vdir",
    "stat",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "cut",
    "paste",
    "tr",
    "rev",
    "nl",
    "fold",
    "fmt",
    "expand",
    "unexpand",
    "column",
    "od",
    "hexdump",
    "strings",
    "md5",
    "md5sum",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "shasum",
    "b2sum",
    "cksum",
    "sum",
    "cmp",
    "comm",
    "join",
    "grep",
    "egrep",
    "fgrep",
    "zgrep",
    "zcat",
    "gzcat",
    "bzcat",
    "xzcat",
    "diff",
    "diff3",
    "jq",
    "du",
    "df",
    "otool",
    "lsof",
    "mdls",
    "mdfind",
    "zipinfo",
    "tsort",
    "look",
    "colrm",
]
"""Programs that have no option to write or to run."""

_KNOW: Final = [
    "pwd",
    "whoami",
    "id",
    "groups",
    "who",
    "w",
    "users",
    "logname",
    "tty",
    "uname",
    "uptime",
    "nproc",
    "free",
    "pgrep",
    "arch",
    "lscpu",
    "lsblk",
    "lsusb",
    "lspci",
    "lsmod",
    "vmstat",
    "iostat",
    "mpstat",
    "cal",
    "ncal",
    "echo",
    "true",
    "false",
    ":",
    "seq",
    "sleep",
    "which",
    "type",
    "whereis",
    "locale",
    "getconf",
    "cd",
    "pushd",
    "popd",
    "dirs",
    "exit",
    "return",
    "break",
    "continue",
    "wait",
    "sw_vers",
    "system_profiler",
    "vm_stat",
    "last",
    "pstree",
    "numfmt",
    "factor",
    "expr",
]
"""Programs that read no files that are named, or only say where they are. `cd` changes what
relative names mean, for programs that are judged themselves."""


def _test(words: Sequence[Word]) -> str | None:
    """`[ … ]`, if it is plain from the places which words are operators.

    `-v` and arithmetic evaluate names, and run what is in `a[$(…)]`.
    """
    inner = [word for word in words if word.text not in {"]", "]]", "!"}]
    others = [word for word in inner if word.text not in _EVALUATES]
    if len(others) < len(inner) and not all(_NUMBER.fullmatch(word.text or "") for word in others):
        return "a name is evaluated"
    if all(word.text is not None for word in inner):
        return None
    match [word.text for word in inner]:
        case [operator, _] if operator in _UNARY:
            pass
        case [_, operator, _] if operator in _BINARY:
            pass
        case _:
            return "what it tests is not known"
    return "what it tests is not known" if any(word.splits for word in inner) else None


_EVALUATES: Final = frozenset({"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NUMBER: Final = re.compile(r"-?[0-9]+")
_UNARY: Final = frozenset({"-d", "-e", "-f", "-n", "-r", "-s", "-w", "-x", "-z", "-L", "-h"})
_BINARY: Final = frozenset({"=", "!=", "-nt", "-ot", "-ef"})
_DATE_FORMAT: Final = re.compile(r"\+.*", re.DOTALL)


def _date(words: Sequence[Word]) -> str | None:
    """`date 01010000` sets the clock, `-s` and an abbreviation of `--set` too."""
    takes_value = False
    for word in words:
        text = word.text
        if takes_value:
            takes_value = False
        elif text in {"-d", "-r", "--date", "--reference"}:
            takes_value = True
        elif text is None or text.startswith("--s"):
            return "it may set the clock"
        elif text.startswith("-"):
            if not text.startswith("--") and "s" in text:
                return "it may set the clock"
        elif not _DATE_FORMAT.fullmatch(text):
            return "it may set the clock"
    return None


_VERSION: Final = Reads(
    allowed=options("--version --help -h"),
    needs=options("--version --help -h"),
    operands=0,
    abbreviated=False,
    single_dash=True,
    capabilities=NOTHING,
)
_VERSIONED: Final = [
    "python",
    "python3",
    "node",
    "ruby",
    "perl",
    "php",
    "rustc",
    "gcc",
    "g++",
    "clang",
    "cc",
    "make",
    "cmake",
    "ninja",
    "tsc",
    "deno",
    "bun",
    "nvm",
    "pyenv",
    "tox",
    "nox",
    "pytest",
    "mypy",
    "eslint",
    "prettier",
    "ansible",
    "ansible-playbook",
    "ansible-console",
    "ansible-vault",
    "ansible-lint",
    "ansible-inventory",
    "ansible-test",
    "prometheus",
    "vim",
    "nano",
    "qlmanage",
    "java",
    "javac",
]
"""Programs that do more, except when they are asked for their version or help."""


def _compress(*, listing: str) -> Reads:
    """Gzip and its like write a file unless they are told not to."""
    return Reads(
        allowed=options("-c -t -l -d -v -q -f -n -k -h -L -V -1 -9 --stdout --to-stdout --test"
                        " --list --decompress --uncompress --help --version --verbose --quiet"),
        needs=options(f"-c -t -h -V --stdout --to-stdout --test --help --version {listing}"),
        abbreviated=False,
    )  # fmt: skip


def _tar(words: Sequence[Word]) -> str | None:
    """`tar tf`, `tar -tf`: a mode that lists, and no option that runs or writes."""
    if not words or any(word.text is None for word in words):
        return "an argument is not known"
    texts = [word.text or "" for word in words]
    first = texts[0] if texts[0].startswith("-") else f"-{texts[0]}"
    clusters = [first, *(t for t in texts[1:] if t.startswith("-") and not t.startswith("--"))]
    letters = set("".join(cluster[1:] for cluster in clusters if not cluster.startswith("--")))
    longs = {text.partition("=")[0] for text in texts if text.startswith("--")}
    # A name with a colon is on another machine.
    if not letters <= set("tvfzjJaZp") or not longs <= _TAR_LONG or any(":" in t for t in texts):
        return "it does more than list"
    return None if "t" in letters or "--list" in longs else "it does more than list"


_TAR_LONG: Final = options("--list --file --wildcards --verbose --gzip --bzip2 --xz --zstd")


def _seven_zip(words: Sequence[Word]) -> str | None:
    texts = [word.text for word in words]
    if not texts or texts[0] in {"--help", "-h"}:
        return None
    switches = [text for text in texts[1:] if text is None or text.startswith("-")]
    fine = all(text is not None and text.startswith(("-slt", "-scrc", "-mmt")) for text in switches)
    return None if texts[0] in {"l", "t", "b", "h", "i"} and fine else "it does more than list"


BASICS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_VERSIONED, _VERSION),
    **{name: replace(_VERSION, capabilities=does) for name, does in CONNECTS.items()},
    **dict.fromkeys(_READ, Reads()),
    **dict.fromkeys(_KNOW, Reads(capabilities=NOTHING)),
    "test": Checked(check=_test),
    "[": Checked(check=_test),
    "[[": Checked(check=_test),
    "printf": Reads(refused=options("-v"), capabilities=NOTHING),
    "date": Checked(check=_date, capabilities=NOTHING),
    "hostname": Reads(
        allowed=options("-f -s -i -I -d -a -A --fqdn --short --ip-address"),
        operands=0,
        capabilities=NOTHING,
    ),
    "file": Reads(refused=options("-C --compile -z -Z --uncompress")),
    "sort": Reads(refused=options("-o --output --compress-program")),
    "uniq": Reads(operands=1),
    "diff": Reads(refused=options("-l --paginate")),
    "rg": Reads(refused=options("-z --pre --hostname-bin --search-zip")),
    "ag": Reads(refused=options("--pager -z --search-zip")),
    "tree": Reads(refused=options("-o -R --output")),
    "bat": Reads(refused=options("--pager --generate-config-file --lessopen"),
                 denied_words=options("cache")),
    "yq": Reads(refused=options("-i -s --inplace --in-place --split-exp"
                                 " --security-enable-system-operator")),
    "xxd": Reads(refused=options("-r -revert"), operands=1),
    "base64": Reads(refused=options("-o --output")),
    "base32": Reads(refused=options("-o --output")),
    "iconv": Reads(refused=options("-o --output")),
    "say": Reads(refused=options("-o -n --output-file --network-send --file-format --interactive"),
                 capabilities=NOTHING),
    "symbols": Reads(refused=options("-saveSignature"), single_dash=True),
    "sed": Checked(check=check_sed),
    "gsed": Checked(check=check_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), Checked(check=check_awk)),
    "tar": Checked(check=_tar),
    "gtar": Checked(check=_tar),
    "unzip": Reads(
        allowed=options("-l -t -Z -z -v -q -h --help"),
        needs=options("-l -t -Z -z -v -h --help"),
    ),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz"), Checked(check=_seven_zip)),
    "gzip": _compress(listing="-l --list"),
    "gunzip": _compress(listing="-l --list"),
    "xz": _compress(listing="-l --list"),
    "bzip2": _compress(listing=""),
    "zstd": _compress(listing="-l --list"),
    "dmesg": Reads(
        refused=options("-c -C -D -E -n --clear --read-clear --console-off --console-on"
                        " --console-level"),
    ),
    "journalctl": Reads(
        refused=options(
            "--vacuum-time --vacuum-size --vacuum-files --sync --flush --rotate --relinquish-var"
            " --smart-relinquish-var --setup-keys --update-catalog --cursor-file"
        ),
    ),
    "ss": Reads(refused=options("-K -D --kill --diag"), capabilities=NOTHING),
    "netstat": Reads(capabilities=NOTHING),
    "ifconfig": Reads(allowed=options("-a -v -s"), operands=1, capabilities=NOTHING),
    "sysctl": Reads(
        allowed=options("-a -n -e -N -A -x -h"), refused_operands=re.compile(r".*=.*")
    ),
    "ps": Reads(refused_operands=re.compile(r"[a-z]*e[a-z]*"), capabilities=NOTHING),
    **dict.fromkeys(("nm", "objdump", "readelf", "size"), Reads(refused=options("--plugin"))),
    "systemctl": Commands(
        commands=commands(
            "status|show|cat|list-units|list-unit-files|list-timers|list-sockets|is-active"
            "|is-enabled|is-failed|list-dependencies|get-default",
            Reads(refused=options("-H --host -M --machine"), capabilities=FILES),
        ),
        flags=options("--user --system --no-pager"),
    ),
    "sqlite3": Checked(check=SQLITE.check),
    "duckdb": Checked(check=DUCKDB.check),
    "psql": Checked(check=PSQL.check, capabilities=frozenset({"net.egress"})),
    "mysql": Checked(check=MYSQL.check, capabilities=frozenset({"net.egress"})),
    "openssl": Commands(
        commands={
            "version": Reads(capabilities=NOTHING),
            "list": Reads(capabilities=NOTHING),
            "x509": Reads(
                allowed=options(
                    "-noout -subject -issuer -startdate -enddate -dates -fingerprint -sha256 -sha1"
                    " -modulus -purpose -serial -hash -in -inform -text -email -pubkey -ext"
                ),
                needs=options("-noout"),
                single_dash=True,
            ),
        },
    ),
    "fish": Acts(capabilities=frozenset(), reason="it runs what it is given"),
}  # fmt: skip
