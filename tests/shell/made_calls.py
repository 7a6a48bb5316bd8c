"""Calls of the programs that the table of readers names, made up from it and from their own help.

The made-up calls are hostile: options that the table does not state, abbreviated and joined ones,
values that look like options, files that hold secrets, names that would be written. Those that are
judged to only read are to be run by the real programs, where something watches them.
"""

import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.cli.shell import looked_at
from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.grammar import Option, grammar_of
from ironcurtain_proxy.shell.programs import entries, expanded
from ironcurtain_proxy.shell.readers import VERSIONS
from ironcurtain_proxy.shell.statements import parse_command

MARK: Final = "XsecretX"
"""A text that only files have which hold secrets, and the environment."""
BUILTIN: Final = frozenset(
    {
        "type",
        "true",
        "false",
        ":",
        "exit",
        "return",
        "break",
        "continue",
        "wait",
        "read",
        "printf",
        "test",
        "[",
        "[[",
        "echo",
        "cd",
        "set",
        "command",
    }
)
_HOSTILE: Final = (
    "-o", "-O", "-w", "-i", "-f", "-C", "-r", "-R", "-x", "-X", "-e", "-s", "-n", "-p", "-D", "-z",
    "--output", "--output=out.txt", "--out", "--no-index", "--ext-diff", "--textconv", "--exec",
    "--pre=./evil", "--hidden", "-u", "-uuu", "--files0-from=.env", "--from-file=.env", "-S", "-U",
    "-L", "-t", "-P", "-ps", "-M", "-B", "--untracked", "--all", "--compress-program=./evil",
)  # fmt: skip
_VALUES: Final = (
    "5", "1", "-5", "+2", "x", "a", "out.txt", ".env", "server.key", "a.txt", ":.env", "1,5:.env",
    "--output=out.txt", "-o", "%h", "HEAD", ",", "never", "always", "json", "*.txt", "*.py", "py",
    "src", "1,2", "", "x1", "@opts", "c", "%s", "--", "0", "b.txt", "XsecretX", "UTF-8", "name",
)  # fmt: skip
_OPERANDS: Final = (
    "-rf", "--output=out.txt", "-oout.txt", "a;b", "$(touch ran)", "./-rf", "l.txt", "out.l",
    "a.txt", "b.txt", "src", ".", "src/a.py", "out.txt", ".env", "server.key", "sub/.env", "HEAD",
    "--", "5", "+1", "out.d", "a.bin", "a.json", "secrets.json", "HEAD:.env", "/etc/hostname", "-",
    "@opts", "x=y", "src/*.py", "*.txt", "*", "aux", "main", "new", "copy.d", "a.txt.gz",
    "a.txt.xz", "../a.txt", "$(touch ran).gz", "a.txt.bz2", "a.txt.zst", "a.zip",
    "../outside/taxes.txt", "~/taxes.txt", "list", "+%Y", "bash",
    "a.patch", "v1", "HEAD~1", "user.name", "x", "3", "PATH", "%s", "show", "*.env", ":/.env",
)  # fmt: skip
_PATTERNS: Final = (
    ".", "a", MARK, "env", "$ENV", "$ENV.TOKEN", "input", "p", "w out.txt", "s/a/b/", "1e id", "5p",
    "s/a/b/w out.txt", "s/a/b/e", "{print}", "{print $1}", '{print > "out.txt"}', "NR==1", "/a/",
    'BEGIN{system("id")}', ".a", "-n", "--", "s/[/]x/w out.txt/", "$p", "1,5p;d",
)  # fmt: skip

_BEFORE: Final = (
    "LC_ALL=C", "LC_ALL=./evil", "LANG=C", "TZ=:./.env", "TZ=UTC", "IFS=,", "COLUMNS=80", "x=1",
    "POSIXLY_CORRECT=1", "GIT_PAGER=cat", "PAGER=./evil", "GIT_EXTERNAL_DIFF=./evil", "LESSOPEN=x",
    "RIPGREP_CONFIG_PATH=opts", "BAT_CONFIG_PATH=opts", "BAT_PAGER=./evil", "GREP_OPTIONS=-r",
    "GIT_CONFIG_COUNT=1", "MAGIC=.env", "LS_COLORS=x", "NO_COLOR=1", "TMPDIR=src", "PATH=.:$PATH",
    "GIT_TRACE=$PWD/out.txt", "GIT_DIR=sub", "HOME=.", "BASH_ENV=evil", "LD_PRELOAD=./evil",
    "cd src &&", "cd ..;", "cd out.l;", "cd out.l &&", "cd sub;", "time", "nice -n 5", "nice",
    "timeout 1", "timeout -s 9 1",
    "command", "builtin", "env", "env -S", "exec", "nohup", "sudo", "xargs", "!", "{", "x=$(",
)  # fmt: skip
_AROUND: Final = 0.15
_ENDS: Final = {"[": ("]",), "[[": ("]]",)}
_BEHIND: Final = (
    "2>/dev/null", "> out.txt", "2> out.txt", "< a.txt", "< .env", "2>&1", "&> out.txt", ">&2",
    "> /dev/null", "3<>out.txt", ">| out.txt", "<<< x", "| head -n 3", "| tee out.txt", "| sort -u",
    "| wc -l", "| sort -o out.txt", "&& cat a.txt", "; cat .env", "| xargs cat", "| sh", "|| true",
    "& touch ran", "<(touch ran)", ">(tee out.txt)", "$(touch ran)", "`touch ran`", "$x",
    "${x:-.env}",
    "{a,.env}", "*", "./*", "src/*", "[a.]*", "~", "# x", "\\\n.env", "\r", "\u00a0x",
)  # fmt: skip


class Entry(Struct, frozen=True):
    """One program or sub-command of the table."""

    name: str
    words: tuple[str, ...]
    text: str
    options: dict[str, Option]
    offered: tuple[str, ...] = ()
    """Options that the program's own help names."""


def table() -> list[Entry]:
    """Return the entries of the table of readers, and what is judged beside it."""
    return [
        *[_entry(name, name, expanded(text)) for name, text in entries("reads").items()],
        *[_entry(name, name, text) for name, text in _OTHERS.items()],
        *[_entry(f"{name} --version", name, "-V --version -v") for name in sorted(VERSIONS)],
    ]


def _entry(name: str, words: str, text: str) -> Entry:
    return Entry(name, tuple(words.split()), text, dict(grammar_of(text).options))


_OTHERS: Final = {
    "find": "-name=t -type=t -path=t -maxdepth=n -newer=t -exec=t -execdir=t -ok=t -delete -print "
    "-printf=t -fprintf=t -fls=t -fprint=t -print0 -size=t -regex=t -o -a -not -ls -prune -quit "
    "-files0-from=t",
    "test": "-e=t -f=t -d=t -s=t -v=t -t=t -eq=t -nt=t -n=t -z=t -lt=t -o=t -a=t -R=t",
    "[": "-e=t -f=t -d=t -s=t -v=t -t=t -eq=t -nt=t -n=t -z=t -lt=t -o=t -a=t",
    "[[": "-e=t -f=t -d=t -s=t -v=t -t=t -eq=t -nt=t -n=t -z=t -lt=t",
    "echo": "-n -e -E",
    "cd": "-P -L -e",
    "set": "-e -u -x -o=t -a -k -euo=t -- +e",
    "command": "-v=t -V=t -p",
}
"""What is judged without the table."""


def with_help(entry: Entry, there: Path) -> Entry:
    """Return an entry with the options that the installed program names in its help."""
    flag = "-h" if entry.words[0] == "git" else "--help"
    try:
        done = subprocess.run(
            [*entry.words, flag], cwd=there, capture_output=True, timeout=5, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return entry
    text = (done.stdout + done.stderr).decode(errors="replace")
    names = re.findall(r"(?<![\w-])(--[a-z][\w-]+|-[A-Za-z0-9])(?![\w])", text)
    return replace(entry, offered=tuple(dict.fromkeys(names)))


def _spelled(draw: random.Random, name: str, option: Option | None) -> list[str]:
    """Return one option as it, or something like it, may be spelled."""
    value = draw.choice(_VALUES)
    stated = option is not None and option.arity != "none"
    takes = stated if draw.random() < 0.8 else not stated
    if name.startswith("--"):
        if draw.random() < 0.1 and len(name) > 5:
            name = name[: draw.randint(3, len(name) - 1)]
        if not takes:
            return [name]
        return [f"{name}={value}"] if draw.random() < 0.5 else [name, value]
    if not takes:
        return [name]
    return draw.choice([[name, value], [name + value], [f"{name}={value}"], [name]])


def made(entry: Entry, draw: random.Random) -> str:
    """Return one call of a program."""
    stated = list(entry.options)
    words: list[list[str]] = []
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4))):
        kind = draw.random()
        if stated and kind < 0.7:
            name = draw.choice(stated)
            words.append(_spelled(draw, name, entry.options[name]))
        elif entry.offered and kind < 0.85:
            words.append(_spelled(draw, draw.choice(entry.offered), None))
        else:
            words.append([draw.choice(_HOSTILE)])
    if "(alone)" not in entry.text and draw.random() < 0.2:
        letters = [name[1] for name in stated if len(name) == 2]
        if letters:
            words.append(["-" + "".join(draw.choices([*letters, *"oOi"], k=draw.randint(2, 3)))])
    operands = [[draw.choice(_OPERANDS)] for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3)))]
    if "(pattern)" in entry.text:
        operands.insert(0, [draw.choice(_PATTERNS)])
    if draw.random() < 0.3:
        words += operands
        draw.shuffle(words)
    else:
        words += operands
    plain = re.compile(r"~/[\w.]+|[\w./]*\*[\w./]*")
    rest = [w if plain.fullmatch(w) else shlex.quote(w) for group in words for w in group]
    before = [draw.choice(_BEFORE)] if draw.random() < _AROUND else []
    behind = [draw.choice(_BEHIND)] if draw.random() < _AROUND else []
    return " ".join([*before, *entry.words, *rest, *behind, *_ENDS.get(entry.name, ())])


def reading_calls(
    entry: Entry, draw: random.Random, place: CommandPlace, most: int, tries: int = 80
) -> Iterator[str]:
    """Give made-up calls that are judged to only read, each once."""
    seen: set[str] = set()
    for _ in range(most * tries):
        command = made(entry, draw)
        parsed = parse_command(command)
        if command not in seen and effect_of(parsed, looked_at(parsed, place)).effect == "reads":
            seen.add(command)
            yield command
            if len(seen) >= most:
                return


_LINES: Final = "".join(f"{n} a line of text\n" for n in range(20))
_FILES: Final[dict[str, Sequence[str]]] = {
    f'{{"password": "{MARK}"}}\n': (
        ".env", "server.key", "sub/.env", "secrets.json", "id_rsa", "copy.d/server.key", ".netrc",
        "out.d/server.key", "../taxes.txt", ".npmrc", "prod.tfvars", "sub/kubeconfig",
        ".git-credentials", "../outside/taxes.txt",
    ),
    _LINES: ("a.txt", "b.txt", "copy.d/a.txt", "out.d/a.txt"),
    "1 2\n": ("5", "+1", "x", "3", "new", "list", "show", "x=y", "@opts", "bash", "PATH", "%s"),
    "a = 1\nprint(a)\n": ("src/a.py", "src/b.py"),
    '{"a": [1, 2]}\n': ("a.json",),
    "--- a.txt\n+++ b.txt\n@@ -1 +1 @@\n-a\n+b\n": ("a.patch",),
    "--output=out.txt\n--pre=./evil\n--hidden\n": (
        "opts", ".ripgreprc", ".batrc", ".wgetrc", ".curlrc", ".sqliterc", ".tree"
    ),
    "-": ("-rf", "--output=out.txt", "-oout.txt", "a;b", "$(touch ran)", "$(touch ran).gz"),
    "* diff=evil filter=evil textconv=evil merge=evil\n": (".gitattributes",),
    '[submodule "s"]\n\tpath = s\n\turl = ext::touch% ran\n': (".gitmodules",),
    "!.env\n!server.key\n": (".ignore", ".fdignore", ".rgignore", ".gitignore"),
    "#!/bin/sh\ntouch ran\n": ("evil",),
}  # fmt: skip
"""The files of a workspace by their contents: secrets, and what programs read of themselves."""


def laid_out(root: Path) -> Path:
    """Make a workspace with files of all kinds, secrets among them, and return it."""
    there = root / "home/work"
    for content, names in _FILES.items():
        for name in names:
            path = there / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    (there / "evil").chmod(0o755)
    (there / "a.bin").write_bytes(Path("/bin/true").read_bytes())
    (there / "l.txt").symlink_to(".env")
    (there / "out.l").symlink_to("../outside")
    for program, ending in (("gzip", "gz"), ("xz", "xz"), ("bzip2", "bz2"), ("zstd", "zst")):
        if shutil.which(program):
            with (there / f"a.txt.{ending}").open("wb") as file:
                subprocess.run([program, "-c", there / "a.txt"], stdout=file, check=True)
    git = ["git", "-C", str(there), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-qb", "main"], ["add", "a.txt", "b.txt", "src", "a.json"],
                  ["commit", "-qm", "one"], ["commit", "-qm", "two", "--allow-empty"],
                  ["tag", "v1"], ["status"]):  # fmt: skip
        subprocess.run([*git, *words], check=True, capture_output=True)
    return there


def place_of(there: Path) -> CommandPlace:
    """Return the place of commands in a workspace that was laid out."""
    return CommandPlace(
        workspace=str(there), directory=str(there), home=str(there.parent), has_repository=True
    )
