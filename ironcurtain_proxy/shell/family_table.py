"""The table of families, and what of a command belongs to one.

The table of families, and the commands that belong to no family.

The table itself is a section of `programs.toml`, with its format at the top.

Words that may be left out of a family: names of tests, project files, formats, numbers.

The options and operands of a command that belong to its family.

An option that the table does not name stays together with the word behind it, because whether it
takes a value is not known.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, assert_never, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.request import ANY, CommandPlace, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.grammar import (
    EndOfOptions,
    GivenOption,
    Grammar,
    Operand,
    Option,
    UnknownOption,
    behind_options,
    grammar_of,
    read_items,
)
from ironcurtain_proxy.shell.places import (
    is_inside,
    is_of_project,
    is_protected_name,
    names_a_secret,
    path_of,
)
from ironcurtain_proxy.shell.programs import entries, expanded, paths, phrases, word_set

OperandKind: TypeAlias = Literal[
    "stay", "paths", "files", "text", "names", "first", "refs", "api", "bucket"
]


class Task(Struct, frozen=True, kw_only=True):
    """A program with its sub-command, and the words that its family leaves out."""

    path: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    operands: OperandKind = "stay"
    files: tuple[str, ...] = ()
    """The files of its directory that say what it does."""
    after: "Task | None" = None
    """The rule for the words behind `--`; None: the rule of test runners."""
    only_reads: bool = False
    """Whether this sub-command is of one kind with the others of its program that only read."""


_OPERAND: Final = re.compile(r"\((\w+)\)")
_FILES: Final = re.compile(r"<([^>]*)>")
_OPERANDS: Final[Mapping[str, OperandKind]] = {kind: kind for kind in get_args(OperandKind)}


@functools.cache
def _task(path: tuple[str, ...], text: str) -> Task:
    text = expanded(text)
    marks = _OPERAND.findall(text)
    files = _FILES.search(text)
    return Task(
        path=path,
        options=grammar_of(text).options,
        operands=next((_OPERANDS[one] for one in marks if one in _OPERANDS), "stay"),
        files=() if files is None else tuple(files[1].split(",")),
        only_reads="reads" in marks,
    )


GENERIC: Final[Mapping[str, Option]] = dict.fromkeys(
    ("--no-color", "--no-colour", "--color", "--no-pager"), Option()
)

LAUNCHERS: Final = phrases("launchers")
"""Programs that start a program of the project by its name. A launcher with an option before the
name is left out: `npx -p` may install another package."""


YARN_RUNS: Final = phrases("yarn-runs")
"""Programs that `yarn NAME` starts from the project."""


def task_texts() -> Mapping[tuple[str, ...], str]:
    """Return the entries of the table by the words of their tasks."""
    return paths("families")


def _found(path: tuple[str, ...]) -> Task | None:
    text = task_texts().get(path)
    return None if text is None else _task(path, text)


_SCRIPT_RUNNERS: Final = frozenset({"npm", "yarn", "pnpm", "bun", "mise", "task"})
_TESTS: Final = re.compile(
    r"test|t\b|lint|check|spec|e2e|unit|fmt|format|type|build|bench|cover|jest|tox|nox|run\b|py\d"
)
"""Tasks that take names of tests or files. `npm run db -- drop` does not."""


def behind_dashes(task: Task) -> Task:
    """Return the rule for the words behind `--`."""
    name = task.path[0].rpartition("/")[2]
    if name in _SCRIPT_RUNNERS and not _TESTS.search(task.path[-1]):
        return Task(path=task.path)
    if name not in word_set("hands-on"):
        return Task(path=task.path, operands=task.operands)
    # Names of tests and files, or what the program behind the task takes.
    return _found((*_AFTER, *task.path)) or _task(_AFTER, task_texts()[_AFTER])


_AFTER: Final = ("*after",)


def hoisted(words: Sequence[Word]) -> list[Word]:
    """Return the words with the options before the sub-command moved to the end."""
    name = (words[0].text or "").rpartition("/")[2]
    text = entries("leading-options").get(name)
    rest = None if text is None else behind_options(grammar_of(text), words[1:])
    moved = words[1 : len(words) - len(rest)] if rest else ()
    if not rest or any(word.text == "--" for word in moved):
        return list(words)
    dashes = next((n for n, word in enumerate(rest) if word.text == "--"), len(rest))
    return [words[0], *rest[:dashes], *moved, *rest[dashes:]]


@functools.lru_cache(256)
def task_of(texts: tuple[str, ...]) -> Task | None:
    """Return the entry for a command, the longest first; None if the program has none."""
    name = _table_name(texts[0]) if texts else None
    if name is None:
        return None
    path = (name, *texts[1:4])
    if path[:2] in _SCRIPTS:
        found = _found((*path[1:3],))
        return None if found is None else replace(found, path=tuple(texts[:3]))
    for length in range(len(path), 0, -1):
        found = _found(path[:length])
        if found is not None:
            return _with_task(replace(found, path=tuple(texts[:length])), texts)
    return None


_SCRIPTS: Final = frozenset({("python", "manage.py"), ("python3", "manage.py"), ("php", "artisan")})
"""Scripts of frameworks, which have entries of their own."""
_SYSTEM: Final = frozenset({"/usr/bin", "/bin", "/usr/local/bin"})
_WRAPPERS: Final = re.compile(
    r"(?:\./)?(?:(?:vendor/bin|node_modules/\.bin|\.venv/bin)/[\w.-]+"
    r"|(?:bin/)?(?:gradlew|mvnw|rails|rake|rspec))"
)


def _table_name(text: str) -> str | None:
    """Return the name of a program in the table; None for another program of the same name."""
    directory, slash, base = text.rpartition("/")
    known = not slash or directory in _SYSTEM or _WRAPPERS.fullmatch(text)
    return base if base and known else None


def _with_task(found: Task, texts: tuple[str, ...]) -> Task:
    """Return the name with the task: in `npm run build`, `build` is a part of the name."""
    if found.path[-1] in {"run", "r", "run-script"} and found.files:
        following = texts[len(found.path) : len(found.path) + 1]
        if following and not following[0].startswith("-"):
            return replace(found, path=(*found.path, *following))
    return found


_CODE: Final = frozenset({"-c", "-e", "--eval", "-p", "--print", "-r", "--exec", "--command"})
_PROTECTED_BRANCHES: Final = word_set("protected-branches") | {""}


_SHARED_NAME: Final = re.compile(
    r"(?:main|master|trunk|devel|dev$|prod|stag|stable|releas|rel[/-]|deploy|live$|pages|gh-pages"
    r"|qa$|uat$|next$|canary|nightly|beta|alpha|preview|hotfix$|env/|integration|v?\d+\.(?:\d|x)|v\d+$"
    r"|(?:te?mp|wip|scratch)(?:[\d._-]|$)|(?:backup|bak|local|private|secret|throwaway)$"
    r"|(?:do-?not|dont|no)[_-]?push)"
)
"""The beginning of names that teams and their deployments share, and of those that say that a
branch is for nobody else."""


_OF_WORK: Final = words("fix feat feature docs doc chore ci test tests refactor bugfix perf build")
"""The first word of branches of one piece of work, by common convention."""


def sounds_protected(branch: str) -> bool:
    """Return whether a branch has a name that is commonly protected, deploys or is for nobody."""
    parts = branch.lower().split("/")
    # Other letters may look like these names.
    if not _PROTECTED_BRANCHES.isdisjoint(parts) or not branch.isascii():
        return True
    # `fix/release-notes` is about releases, `release/notes` is one.
    is_of_work = len(parts) > 1 and parts[0] in _OF_WORK
    return not is_of_work and any(map(_SHARED_NAME.match, parts))


def never_general(words: Sequence[Word], task: Task) -> bool:
    """Return whether an approval covers only the identical command."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "git":
        return _never_git(texts)
    path = [text for text in texts[1:4] if not text.startswith("-")]
    if any(text in word_set("never") for text in path[:2]) and task.path[-1:] != ("rm",):
        return True
    is_secret = name in {"kubectl", "helm", "oc"} and any("secret" in text for text in texts)
    # The filter of `--jq` may show the environment, with the token.
    if name == "gh" and any(map(_FILTER.match, texts)):
        is_secret = re.search(r"(?:\b|-\w*q)(?:env|ENV)\b", " ".join(texts)) is not None
    if is_secret or _reads_statements(name, texts[1:]) or _follows_input(name, texts[1:]):
        return True
    if name not in word_set("family-table-interpreters"):
        return False
    # What an interpreter is handed by an option, or reads from its input, is code.
    scripts = {"python", "python3", "node", "ruby", "perl", "php", "bash", "sh", "zsh", "lua"}
    runs_options = name in scripts and task.path[-1:] == (texts[0],) and texts[1:2] != ["--version"]
    return runs_options or any(text in _CODE for text in texts)


_FILTER: Final = re.compile(r"--jq|-\w*q")
_MAKEFILE: Final = re.compile(r"(-[a-zA-Z]*f|--(make)?file=?)?(-|/dev/stdin)")
_SCRIPT: Final = re.compile(r"-[a-zA-Z]*f|--fi")
_TREE: Final = re.compile(r"-[a-zA-Z]*[rRa]|--[ra]")
_ARCHIVE: Final = re.compile(r"-?[a-zA-Z]*f|--fi")
_STATED: Final[Mapping[str, str]] = {
    "psql": r"-[aAbeEHnqsStwWxXz01]*[cfl]|--(command|file|list|help|version)",
    **dict.fromkeys(("mysql", "mariadb"), r"-[BNqrstvV]*e|--(execute|help|version)"),
    **dict.fromkeys(("sqlite3", "duckdb", "mongosh"), r"-?-(help|version|c$|cmd|eval)"),
}
"""The options with which a database's program reads no statements from its input."""


def _follows_input(name: str, texts: Sequence[str]) -> bool:
    """Return whether a program does what its input, a script that may run, or a tree says."""
    from_input = not {"-", "/dev/stdin"}.isdisjoint(texts)
    match name:
        case "make" | "gmake":
            return any(_MAKEFILE.fullmatch(text) for text in texts)
        case "sed" | "gsed":
            return any(_SCRIPT.match(text) for text in texts)
        case "tar" | "bsdtar" | "gtar":
            is_named = any(_ARCHIVE.match(text) for text in texts if text.startswith("-"))
            is_named = is_named or any(_ARCHIVE.fullmatch(text) for text in texts[:1])
            return from_input or not is_named or any(text.endswith("=-") for text in texts)
        case "cp" | "gcp":
            # What is there chooses the names of what is written, hooks and settings among them.
            return any(not text or _TREE.match(text) for text in texts)
        case _:
            return from_input and name in {"source", "."}


def archive_of(words: Sequence[Word]) -> Word | None:
    """Return the archive that a command unpacks, to names that the archive chooses, or None.

    It is the first operand; where that is no file, the command is not remembered at all.
    """
    texts = [word.text or "" for word in words]
    operands = [word for word in words[1:] if not word.prefix.startswith("-")]
    is_unpacked = False
    match texts[0].rpartition("/")[2]:
        case "tar" | "bsdtar" | "gtar":
            is_old = len(texts) > 1 and not texts[1].startswith("-")
            operands = operands[1:] if is_old else operands
            is_unpacked = any(map(_UNPACKS.match, texts[2:] if is_old else texts[1:]))
            is_unpacked = is_unpacked or (is_old and "x" in texts[1])
        case "unzip":
            is_unpacked = not any(re.match(r"-[a-zA-Z]*[lptvzZ]", text) for text in texts)
        case _:
            pass
    return (operands or [words[0]])[0] if is_unpacked else None


_UNPACKS: Final = re.compile(r"-[a-zA-Z]*x|--ex|--ge")


def _reads_statements(name: str, texts: Sequence[str]) -> bool:
    """Return whether a database's program does what its input (terminal or pipe) says."""
    if name not in _STATED or "-" in texts or "/dev/stdin" in texts:
        return name in _STATED
    are_behind = name in {"sqlite3", "duckdb"}
    operands = [text for text in texts if not text.startswith("-")]
    is_stated = any(re.match(_STATED[name], text) for text in texts)
    return not (is_stated or (are_behind and len(operands) > 1))


def script_of(words: Sequence[Word], place: CommandPlace) -> str | None:
    """Return the file of the project that a command runs, as an absolute path.

    It is None if it runs none.
    """
    if not words:
        return None
    name = words[0].text or ""
    if name.rpartition("/")[2] in word_set("run-scripts") and _table_name(name) is not None:
        operand = words[1] if len(words) > 1 else Word("-")
        script = None if operand.prefix.startswith("-") else path_of(operand, place)
    elif "/" in name and _table_name(name) is None:
        script = path_of(words[0], place)
    else:
        return None
    is_framework = tuple(word.text for word in words[:2]) in _SCRIPTS
    return script if script and is_inside(script, place) and not is_framework else None


def names_what_is_never_general(texts: Sequence[str]) -> bool:
    """Return whether the name of a script or an argument of it says that it deploys or deletes."""
    parts = (part for text in texts for part in re.split(r"[^a-z]+", text.lower()))
    return not word_set("never").isdisjoint(parts)


def _never_git(texts: Sequence[str]) -> bool:
    """Return whether a git command merges, forces, deletes, or pushes to a protected branch."""
    commands = [text for text in texts[1:] if not text.startswith("-")]
    match commands[:1]:
        case ["push"]:
            return any(map(forces, texts[1:])) or _pushes_protected(commands[1:])
        case ["fetch"]:
            # `--multiple`, in all its spellings: every operand is a remote.
            return any(re.match(r"--m|-\w*m", text) for text in texts)
        case ["merge"] | ["reset"] | ["clean"] | ["rm"] | ["gc"] | ["prune"] | ["filter-branch"]:
            return True
        case [] | ["update-ref"] | ["replace"]:
            return True
        case _:
            return False


def forces(text: str) -> bool:
    """Return whether an option of a push forces or deletes, abbreviated or joined as well."""
    if not text.startswith("--"):
        return text.startswith("-") and not {"f", "d"}.isdisjoint(text.partition("o")[0])
    name = text.partition("=")[0]
    long = ("--force", "--delete", "--mirror", "--prune", "--all", "--branches")
    return any(name.startswith(one) or (one.startswith(name) and len(name) > 2) for one in long)  # noqa: PLR2004


def _pushes_protected(operands: Sequence[str]) -> bool:
    """Return whether a push may change a branch that is protected, or one that is not known."""
    if len(operands) < 2 or any(text.startswith(("+", ":")) or "*" in text for text in operands):  # noqa: PLR2004
        return True
    targets = {text.rpartition(":")[2].removeprefix("refs/heads/") for text in operands[1:]}
    return any(
        target in _PROTECTED_BRANCHES or target.startswith(("release/", "refs/"))
        for target in targets
    )


# --- family words


_NUMBER: Final = re.compile(r"[\d.]+(?:[smhd]|ms|%|[KMG]i?B?)?", re.ASCII)
_WORD: Final = re.compile(r"[\w:,+%-]+(?:\.[\w:,+%-]+)*")
_NAME: Final = re.compile(r"[\w.:@/#-]+")
_LEADS_OUT: Final = re.compile(r"^[/~@+:]|://|(?:^|/)\.\.(?:/|$)")
_TEMPLATES: Final = ("jsonpath=", "go-template=", "custom-columns=", "format:", "%")


def is_free_value(  # noqa: PLR0911  one answer for each kind
    kind: str, word: Word, place: CommandPlace
) -> bool:
    """Return whether the value of an option may be left out."""
    if word.text is None:
        return kind == "t" and not word.splits
    text = word.text
    match kind:
        case "t":
            # `%output{FILE}` in a format of curl writes a file.
            return not text.startswith(("@", "file:")) and "%output" not in text
        case "n":
            return bool(_NUMBER.fullmatch(text) or re.fullmatch(r"\d+", text))
        case "w":
            return bool(_WORD.fullmatch(text))
        case "f":
            return text in word_set("formats") or text.startswith(_TEMPLATES) or "{{" in text
        case "p":
            return is_free_path(word, place)
        case _:
            return False


def is_free(task: Task, word: Word, index: int, place: CommandPlace) -> bool:
    """Return whether an operand may be left out."""
    match task.operands:
        case "paths" | "files" as kind:
            is_plain = kind == "files" or _PLAINLY_A_FILE.search(spelled(word)) is not None
            return is_plain and is_free_path(word, place)
        case "first":
            return index > 0 and is_free_path(word, place)
        case "text":
            return word.text is not None and not _LEADS_OUT.search(word.text)
        case "names":
            return bool(_NAME.fullmatch(word.text or "")) and is_free_path(word, place)
        case "refs":
            return index > 0 and bool(_REF.fullmatch(word.text or ""))
        case _:
            return False


def spelled(word: Word) -> str:
    """Return the text of a word in a family.

    A mark stands for a part that is only known at run time.
    """
    return word.text if word.text is not None else word.pattern.replace("*", ANY)


def shortened(task: Task, word: Word) -> str:
    """Return an operand of the family; numbers in the paths of an API stand for any."""
    text = spelled(word)
    if task.operands == "api":
        return re.sub(r"(?<=/)\d+(?=/|$)", "N", text.partition("?")[0])
    if task.operands == "bucket":
        found = re.match(r"\w+://[^/]+", text)
        return found[0] if found else text
    return text


_PLAINLY_A_FILE: Final = re.compile(r"[./]")
"""A sign that no sub-command or mode has: `tar xIf` is one, though a file may be called so."""
_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+/")
"""A name that looks like a path of the project, such as `github.com/other/package`."""
_ASSIGNS: Final = re.compile(r"[\w.-]+=")
"""A variable that programs such as `cucumber` and `rake` take among their operands."""
_REF: Final = re.compile(r"\w+(?:[./-]\w+)*")
"""The name of a branch, without a target or a sign that forces the push."""
_TEST_PART: Final = re.compile(r"(?:::|#|:\d|\[).*$", re.DOTALL)


def is_free_path(word: Word, place: CommandPlace) -> bool:
    """Return whether a word is a file, a package or a pattern inside the project, and no more."""
    text = word.text if word.text is not None else word.pattern
    if "://" in text or not text or "\n" in text or names_a_secret([word]):
        return False
    if ".." in re.split(r"[/\\]", text.replace("...", "")) or text.startswith(("~", "@", "+", "-")):
        return False
    if is_protected_name(text) or _HOST.match(text) or _ASSIGNS.match(text):
        return False
    plain = _TEST_PART.sub("", text) if not text.startswith("//") else text.removeprefix("//")
    path = path_of(Word(plain or "."), place)
    return path is not None and is_of_project(path, place)


# --- family options


def reduced(task: Task, words: Sequence[Word], place: CommandPlace) -> list[str]:
    """Return the options and operands that belong to the family.

    What the grammar does not state for certain stays, with the word behind it.
    """
    options: set[str] = set()
    operands: list[str] = []
    after: list[str] = []
    items = read_items(Grammar({**GENERIC, **task.options}), words)
    for at, item in items:
        match item:
            case EndOfOptions():
                rule = task.after if task.after is not None else behind_dashes(task)
                after = reduced(rule, words[at:], place)
            case Operand(word):
                if not is_free(task, word, len(operands), place):
                    operands.append(shortened(task, word))
            case GivenOption():
                options.update(_kept(item, place))
            case UnknownOption(word):
                is_alone = "=" in word.prefix or word.text is None
                value = () if is_alone else words[at : at + 1]
                if not value or value[0].prefix.startswith("-"):
                    options.add(spelled(word))
                else:
                    options.add(f"{spelled(word)} {spelled(value[0])}")
                    next(items)
            case _:
                assert_never(item)
    return [*sorted(options), *operands, *(["--", *after] if after else ())]


def _kept(given: GivenOption, place: CommandPlace) -> list[str]:
    """Return the part of an option that belongs to the family."""
    option, name, value = given.option, given.name, given.value
    if given.word.text is None:
        return [spelled(given.word)]
    if value is None:
        return [name] if option.stays else []
    if option.kind == "v" and value.text is not None:
        field, _, content = value.text.partition("=")
        plain = content and (name in _NEVER_FILES or not content.startswith("@"))
        return [f"{name}={field if plain else value.text}"]
    if option.kind == "v" and name in _NEVER_FILES and "=" in value.prefix and not value.splits:
        return [f"{name}={value.prefix.partition('=')[0]}"]
    free = not option.stays and is_free_value(option.kind, value, place)
    return [] if free else [f"{name}={spelled(value)}"]


_NEVER_FILES: Final = frozenset({"-f", "--raw-field"})
"""Fields whose value is text, whatever it begins with."""
