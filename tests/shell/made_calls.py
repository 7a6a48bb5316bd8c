"""Calls of the programs that the table of readers names, made up from it and from their own help.

The made-up calls are hostile: options that the table does not state, abbreviated and joined ones,
values that look like options, files that hold secrets, names that would be written. Those that are
judged to only read are to be run by the real programs, where something watches them.
"""

import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.grammar import Option, grammar_of
from ironcurtain_proxy.shell.programs import entries, expanded
from ironcurtain_proxy.shell.statements import parse_command

MARK: Final = "XsecretX"
"""A text that only files have which hold secrets, and the environment."""
BUILTIN: Final = frozenset(
    {"type", "true", "false", ":", "exit", "return", "break", "continue", "wait", "read", "printf"}
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
    "a.txt", "b.txt", "src", ".", "src/a.py", "out.txt", ".env", "server.key", "sub/.env", "HEAD",
    "--", "5", "+1", "out.d", "a.bin", "a.json", "secrets.json", "HEAD:.env", "/etc/hostname", "-",
    "@opts", "x=y", "src/*.py", "*.txt", "*", "aux", "main", "new", "copy.d", "a.txt.gz",
    "a.txt.xz",
    "a.txt.bz2", "a.txt.zst", "a.zip", "../outside/taxes.txt", "~/taxes.txt", "list", "+%Y", "bash",
    "a.patch", "v1", "HEAD~1", "user.name", "x", "3", "PATH", "%s", "show", "*.env", ":/.env",
)  # fmt: skip
_PATTERNS: Final = (
    ".", "a", MARK, "env", "$ENV", "$ENV.TOKEN", "input", "p", "w out.txt", "s/a/b/", "1e id", "5p",
    "s/a/b/w out.txt", "s/a/b/e", "{print}", "{print $1}", '{print > "out.txt"}', "NR==1", "/a/",
    'BEGIN{system("id")}', ".a", "-n", "--", "s/[/]x/w out.txt/", "$p", "1,5p;d",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One program or sub-command of the table."""

    name: str
    words: tuple[str, ...]
    text: str
    options: dict[str, Option]
    offered: tuple[str, ...] = ()
    """Options that the program's own help names."""


def table() -> list[Entry]:
    """Return the entries of the table of readers."""
    found = []
    for name, text in entries("reads").items():
        whole = expanded(text)
        found.append(Entry(name, tuple(name.split()), whole, dict(grammar_of(whole).options)))
    return found


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
    return " ".join(
        [
            *entry.words,
            *(w if plain.fullmatch(w) else shlex.quote(w) for group in words for w in group),
        ]
    )


def reading_calls(
    entry: Entry, draw: random.Random, place: CommandPlace, most: int, tries: int = 80
) -> Iterator[str]:
    """Give made-up calls that are judged to only read, each once."""
    seen: set[str] = set()
    for _ in range(most * tries):
        command = made(entry, draw)
        if command not in seen and effect_of(parse_command(command), place).effect == "reads":
            seen.add(command)
            yield command
            if len(seen) >= most:
                return


def laid_out(root: Path) -> Path:
    """Make a workspace with files of all kinds, secrets among them, and return it."""
    home = root / "home"
    there = home / "work"
    (there / "src").mkdir(parents=True)
    (there / "sub").mkdir()
    (there / "copy.d").mkdir()
    (there / "out.d").mkdir()
    (home / "outside").mkdir()
    for path in (there / ".env", there / "server.key", there / "sub" / ".env",
                 there / "secrets.json", there / "id_rsa", there / "copy.d" / "server.key",
                 there / "out.d" / "server.key", home / "taxes.txt",
                 home / "outside" / "taxes.txt"):  # fmt: skip
        path.write_text(f'{{"password": "{MARK}"}}\n')
    lines = "".join(f"{n} a line of text\n" for n in range(20))
    for name in ("a.txt", "b.txt", "copy.d/a.txt", "out.d/a.txt"):
        (there / name).write_text(lines)
    for name in ("5", "+1", "x", "3", "new", "list", "show", "x=y", "@opts", "bash", "PATH", "%s"):
        (there / name).write_text("1 2\n")
    (there / "src/a.py").write_text("a = 1\nprint(a)\n")
    (there / "src/b.py").write_text("b = 2\n")
    (there / "a.json").write_text('{"a": [1, 2]}\n')
    (there / "a.patch").write_text("--- a.txt\n+++ b.txt\n@@ -1 +1 @@\n-a\n+b\n")
    (there / "a.bin").write_bytes(Path("/bin/true").read_bytes())
    (there / "opts").write_text("--output=out.txt\n")
    (there / "evil").write_text("#!/bin/sh\ntouch ran\n")
    (there / "evil").chmod(0o755)
    for program, ending in (("gzip", "gz"), ("xz", "xz"), ("bzip2", "bz2"), ("zstd", "zst")):
        with (there / f"a.txt.{ending}").open("wb") as file:
            try:
                subprocess.run([program, "-c", there / "a.txt"], stdout=file, check=True)
            except (OSError, subprocess.CalledProcessError):
                continue
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
