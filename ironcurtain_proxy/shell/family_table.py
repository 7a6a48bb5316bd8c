"""The table of families, and the commands that belong to no family.

The table itself is a section of `programs.toml`, with its format at the top.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.grammar import Option, grammar_of
from ironcurtain_proxy.shell.places import is_inside, path_of
from ironcurtain_proxy.shell.programs import expanded, paths

OperandKind: TypeAlias = Literal[
    "stay", "paths", "files", "text", "names", "first", "refs", "api", "bucket"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program with its sub-command, and the words that its family leaves out."""

    path: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    operands: OperandKind = "stay"
    files: tuple[str, ...] = ()
    after: "Task | None" = None
    """The rule for the words behind `--`; None: the rule of test runners."""
    only_reads: bool = False
    """Whether this sub-command is of one kind with the others of its program that only read."""

    @property
    def has_meaning(self) -> bool:
        """Whether a file of its directory says what the task does."""
        return bool(self.files)


_OPERAND: Final = re.compile(r"\((\w+)\)")
_FILES: Final = re.compile(r"<([^>]*)>")
_OPERANDS: Final[Mapping[str, OperandKind]] = {
    "paths": "paths", "files": "files", "text": "text", "names": "names", "first": "first",
    "refs": "refs", "api": "api", "bucket": "bucket",
}  # fmt: skip


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

LAUNCHERS: Final = (
    ("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("hatch", "run"),
    ("bundle", "exec"), ("pnpm", "exec"), ("yarn", "exec"), ("npx",), ("bunx",), ("uvx",),
    ("python", "-m"), ("python3", "-m"), (".venv/bin/python", "-m"),
    (".venv/bin/python3", "-m"), ("npm", "exec"), ("dotnet", "tool"), ("mise", "exec", "--"),
)  # fmt: skip
"""Programs that start a program of the project by its name. A launcher with an option before the
name is left out: `npx -p` may install another package."""


YARN_RUNS: Final = tuple(
    (name,)
    for name in ("jest", "vitest", "eslint", "tsc", "prettier", "mocha", "playwright", "cypress",
                 "stylelint", "webpack")
)  # fmt: skip
"""Programs that `yarn NAME` starts from the project."""


def task_texts() -> Mapping[tuple[str, ...], str]:
    """Return the entries of the table by the words of their tasks."""
    return paths("families")


def _found(path: tuple[str, ...]) -> Task | None:
    text = task_texts().get(path)
    return None if text is None else _task(path, text)


_SCRIPT_RUNNERS: Final = frozenset({"npm", "yarn", "pnpm", "bun", "mise", "task"})
_HANDS_ON: Final = words(
    """
    npm yarn pnpm bun cargo mise task dotnet swift bazel vitest jest turbo nx gradle stack cabal ng
    mix gotestsum tox nox hatch meson pants buck2 deno gradlew cross
    """
)
"""Programs that hand the words behind `--` to what they run. For others they are operands."""
_TESTS: Final = re.compile(
    r"test|t\b|lint|check|spec|e2e|unit|fmt|format|type|build|bench|cover|jest|tox|nox|run\b|py\d"
)
"""Tasks that take names of tests or files. `npm run db -- drop` does not."""


def behind_dashes(task: Task) -> Task:
    """The rule for the words behind `--`."""
    name = task.path[0].rpartition("/")[2]
    if name in _SCRIPT_RUNNERS and not _TESTS.search(task.path[-1]):
        return Task(path=task.path)
    if name not in _HANDS_ON:
        return Task(path=task.path, operands=task.operands)
    # Names of tests and files.
    return _task(_AFTER, task_texts()[_AFTER])


_AFTER: Final = ("*after",)
_LEADING: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (frozenset(flags.split()), frozenset(values.split()))
    for name, flags, values in (
        ("pnpm", "-r --recursive -w --workspace-root -s --silent", "--filter -F"),
        ("npm", "-s --silent", "-w --workspace"),
        ("yarn", "-s --silent", ""),
        ("kubectl", "", "-n --namespace --context"),
        ("helm", "", "-n --namespace --kube-context"),
        ("docker", "", ""),
        ("git", "--no-pager", ""),
        ("mvn", "-q -B -e -o -ntp --no-transfer-progress", "-pl"),
        ("mvnw", "-q -B -e -o", ""),
        ("gradlew", "-q --quiet --no-daemon --offline -s -i", ""),
        ("gradle", "-q --no-daemon", ""),
        ("gh", "", "-R --repo"),
        ("glab", "", "-R --repo"),
        ("aws", "--no-cli-pager", "--profile --region --output"),
        ("cargo", "-q -v --quiet --verbose --locked --offline", ""),
        ("ruff", "-q -v", ""),
        ("uv", "-q -v --quiet", ""),
        ("poetry", "-q -v -n", ""),
        ("pip", "-q -v --quiet --disable-pip-version-check", ""),
        ("terraform", "", ""),
        ("flutter", "-v --verbose", ""),
        ("dotnet", "", ""),
    )
}
"""Options that stand before the sub-command or behind it; those with a value second."""


def hoisted(words: Sequence[Word]) -> list[Word]:
    """The words with the options before the sub-command moved to the end."""
    name = (words[0].text or "").rpartition("/")[2]
    if name not in _LEADING:
        return list(words)
    flags, values = _LEADING[name]
    at = 1
    while at < len(words):
        text = words[at].text or ""
        if text in flags or (text.partition("=")[0] in values and "=" in text):
            at += 1
        elif text in values and at + 1 < len(words):
            at += 2
        else:
            break
    if at == 1:
        return list(words)
    moved = list(words[1:at])
    rest = [words[0], *words[at:]]
    dashes = next((n for n, word in enumerate(rest) if word.text == "--"), len(rest))
    return [*rest[:dashes], *moved, *rest[dashes:]]


@functools.lru_cache(256)
def task_of(texts: tuple[str, ...]) -> Task | None:
    """The entry for a command, the longest first; None if the program has none."""
    name = _table_name(texts[0]) if texts else None
    if name is None:
        return None
    path = (name, *texts[1:4])
    if path[:2] in _SCRIPTS:
        found = _found((*path[1:3],))
        return None if found is None else _renamed(found, texts[:3])
    for length in range(len(path), 0, -1):
        found = _found(path[:length])
        if found is not None:
            return _with_task(_renamed(found, texts[:length]), texts)
    return None


_SCRIPTS: Final = frozenset({("python", "manage.py"), ("python3", "manage.py"), ("php", "artisan")})
"""Scripts of frameworks, which have entries of their own."""
_SYSTEM: Final = frozenset({"/usr/bin", "/bin", "/usr/local/bin"})
_WRAPPERS: Final = re.compile(
    r"(?:\./)?(?:(?:vendor/bin|node_modules/\.bin|\.venv/bin)/[\w.-]+"
    r"|(?:bin/)?(?:gradlew|mvnw|rails|rake|rspec))"
)


def _table_name(text: str) -> str | None:
    """The name of a program in the table; None for another program of the same name."""
    directory, slash, base = text.rpartition("/")
    known = not slash or directory in _SYSTEM or _WRAPPERS.fullmatch(text)
    return base if base and known else None


def _renamed(found: Task, texts: Sequence[str]) -> Task:
    return replace(found, path=tuple(texts))


def _with_task(found: Task, texts: tuple[str, ...]) -> Task:
    """The name with the task: in `npm run build`, `build` is a part of the name."""
    if found.path[-1] in {"run", "r", "run-script"} and found.files:
        following = texts[len(found.path) : len(found.path) + 1]
        if following and not following[0].startswith("-"):
            return _renamed(found, (*found.path, *following))
    return found


_NEVER: Final = words(
    """
    publish deploy release push upload merge apply destroy delete rm remove prune purge reset clean
    drop uninstall unpublish yank promote rollback exec ssh scp sudo su doas shell eval login logout
    token auth secret secrets
    """
)
_CODE: Final = frozenset({"-c", "-e", "--eval", "-p", "--print", "-r", "--exec", "--command"})
_INTERPRETERS: Final = words(
    """
    python python3 node ruby perl php bash sh zsh lua deno bun Rscript psql mysql sqlite3 redis-cli
    mongosh
    """
)
_PROTECTED_BRANCHES: Final = frozenset(
    {
        "main",
        "master",
        "trunk",
        "develop",
        "production",
        "prod",
        "release",
        "stable",
        "HEAD",
        "@",
        "",
    }
)


_SHARED_NAME: Final = re.compile(
    r"(?:main|master|trunk|devel|dev$|prod|stag|stable|releas|rel[/-]|deploy|live$|pages|gh-pages"
    r"|qa$|uat$|next$|canary|nightly|beta|alpha|preview|hotfix$|env/|integration|v?\d+\.(?:\d|x))"
)
"""The beginning of names that teams and their deployments share."""


_OF_WORK: Final = words("fix feat feature docs doc chore ci test tests refactor bugfix perf build")
"""The first word of branches of one piece of work, by common convention."""


def sounds_protected(branch: str) -> bool:
    """Return whether a branch has a name that is commonly protected, or that deploys."""
    parts = branch.lower().split("/")
    if not _PROTECTED_BRANCHES.isdisjoint(parts):
        return True
    # `fix/release-notes` is about releases, `release/notes` is one.
    is_of_work = len(parts) > 1 and parts[0] in _OF_WORK
    return not is_of_work and any(map(_SHARED_NAME.match, parts))


def never_general(words: Sequence[Word], task: Task) -> bool:
    """Whether an approval covers only the identical command."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "git":
        return _never_git(texts)
    path = [text for text in texts[1:4] if not text.startswith("-")]
    if any(text in _NEVER for text in path[:2]) and task.path[-1:] != ("rm",):
        return True
    if name in {"kubectl", "helm", "oc"} and any("secret" in text for text in texts):
        return True
    if name not in _INTERPRETERS:
        return False
    # What an interpreter is handed by an option, or reads from its input, is code.
    scripts = {"python", "python3", "node", "ruby", "perl", "php", "bash", "sh", "zsh", "lua"}
    runs_options = name in scripts and task.path[-1:] == (texts[0],) and texts[1:2] != ["--version"]
    return runs_options or any(text in _CODE for text in texts)


def script_of(words: Sequence[Word], place: Place) -> str | None:
    """The file of the project that a command runs, as an absolute path; None: it runs none."""
    if not words:
        return None
    name = words[0].text or ""
    if name.rpartition("/")[2] in _RUN_SCRIPTS and _table_name(name) is not None:
        operand = words[1] if len(words) > 1 else Word("-")
        script = None if operand.prefix.startswith("-") else path_of(operand, place)
    elif "/" in name and _table_name(name) is None:
        script = path_of(words[0], place)
    else:
        return None
    is_framework = tuple(word.text for word in words[:2]) in _SCRIPTS
    return script if script and is_inside(script, place) and not is_framework else None


_RUN_SCRIPTS: Final = words(
    """
    python python3 node ruby perl php bash sh zsh lua Rscript ts-node tsx source .
    """
)


def names_what_is_never_general(texts: Sequence[str]) -> bool:
    """Whether the name of a script or an argument of it says that it deploys or deletes."""
    parts = (part for text in texts for part in re.split(r"[^a-z]+", text.lower()))
    return not _NEVER.isdisjoint(parts)


def _never_git(texts: Sequence[str]) -> bool:
    """Whether a git command merges, forces, deletes, or pushes to a protected branch."""
    commands = [text for text in texts[1:] if not text.startswith("-")]
    match commands[:1]:
        case ["push"]:
            return any(map(_forces, texts[1:])) or _pushes_protected(commands[1:])
        case ["fetch"]:
            # `--multiple`, in all its spellings: every operand is a remote.
            return any(re.match(r"--m|-\w*m", text) for text in texts)
        case ["merge"] | ["reset"] | ["clean"] | ["rm"] | ["gc"] | ["prune"] | ["filter-branch"]:
            return True
        case [] | ["update-ref"] | ["replace"]:
            return True
        case _:
            return False


def _forces(text: str) -> bool:
    """Whether an option of a push forces or deletes, abbreviated or among others as well."""
    if not text.startswith("--"):
        return text.startswith("-") and not {"f", "d"}.isdisjoint(text.partition("o")[0])
    name = text.partition("=")[0]
    long = ("--force", "--delete", "--mirror", "--prune", "--all", "--branches")
    return any(name.startswith(one) or (one.startswith(name) and len(name) > 2) for one in long)  # noqa: PLR2004


def _pushes_protected(operands: Sequence[str]) -> bool:
    """Whether a push may change a branch that is protected, or one that is not known."""
    if len(operands) < 2 or any(text.startswith(("+", ":")) or "*" in text for text in operands):  # noqa: PLR2004
        return True
    targets = {text.rpartition(":")[2].removeprefix("refs/heads/") for text in operands[1:]}
    return any(
        target in _PROTECTED_BRANCHES or target.startswith(("release/", "refs/"))
        for target in targets
    )
