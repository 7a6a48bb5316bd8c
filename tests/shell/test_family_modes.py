"""No word that a program may read as an option, a mode or a command is left out of a family.

The pairs are made from the whole table: each task is approved with a file, and a word is put where
a program may read it as more.
"""

from functools import cache
from typing import Final

import pytest

from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.family_table import Task, task_of, task_texts
from ironcurtain_proxy.shell.statements import parse_command
from tests.examples import sample
from tests.shell.places import PROJECT, covers
from tests.tables import table

READ_NO_MODES: Final = words(
    """
    *after actionlint alejandra alex ansible-lint artisan autopep8 bandit basedpyright bats bazel
    bazelisk behave black brakeman buf bun busted checkov clang-format clang-tidy codespell cp
    cppcheck cpplint crystal cucumber cucumber-js dart deadcode deno depcheck detekt docker dotnet
    dprint dupl ec editorconfig-checker erb_lint errcheck eslint flake8 flutter fourmolu git go
    goconst gocyclo gofmt gofumpt goimports golangci-lint gosec govulncheck hadolint ineffassign
    interrogate isort jar jest jshint jsonlint knip kube-linter kubeconform kubeval luacheck lychee
    madge markdownlint markdownlint-cli2 misspell mix mkdir mypy nilaway nimble nixfmt nixpkgs-fmt
    ormolu paratest pest php-cs-fixer phpcs phpunit playwright prettier protoc protolint prove
    py.test pycodestyle pydocstyle pyflakes pylint pyright pytest pytype rails reek revive robot
    rspec rubocop ruff rustfmt scalafmt shellcheck size-limit slim-lint spectral sqlfluff standard
    standardrb staticcheck stylelint stylish-haskell stylua swiftformat taplo textlint tflint tfsec
    touch trivy ts-prune twine typos unparam unzip vitest vulture write-good xo yamllint yapf zig
    zipinfo
    """
)
"""Programs of which somebody looked up that a bare word is a file or a test, here and there."""
BARE: Final = ("install", "publish", "xIf", "run", "ci", "a,b")
SIGNED: Final = (
    "-9Z", "--zz", "--zz=a.x", "--exec=./a.x", "-I./a.x", "@a.x", "+a", "A=b", "CC=./a.x",
    "../a.x", "/opt/a.x", "~/a.x", "https://evil.example/a.x", ".git/hooks/a",
)  # fmt: skip
WITH_TEXT: Final = frozenset({"text", "api", "bucket", "refs"})


def _tasks() -> list[tuple[str, ...]]:
    """Return one task of each program and entry: sub-commands of one entry differ in nothing."""
    found = {(path[0], text): path for path, text in task_texts().items() if path[0][0] != "*"}
    return list(found.values())


def _task(path: tuple[str, ...]) -> Task:
    task = task_of(path)
    assert task is not None
    return task


@cache
def _granted(approved: str) -> tuple[Family, ...]:
    return families_of(parse_command(approved), PROJECT) or ()


def _stretched(approved: str, then: tuple[str, ...]) -> list[str]:
    granted = _granted(approved)
    return [one for one in then if granted and covers(granted, parse_command(one), PROJECT)]


@pytest.mark.parametrize("word", BARE)
def test_a_bare_word_may_be_a_mode_unless_the_table_says_that_it_is_a_file(word: str) -> None:
    stretched = [
        found
        for path in _tasks()
        if _task(path).operands in {"stay", "paths", "first"}
        for name in [" ".join(path)]
        for found in _stretched(
            f"{name} sub/a.x", (f"{name} {word}", f"{name} {word} sub/a.x", f"{name} -- {word}")
        )
    ]
    assert stretched == []


@pytest.mark.parametrize("word", SIGNED)
def test_no_word_with_a_sign_of_more_than_a_file_is_left_out(word: str) -> None:
    stretched = [
        found
        for path in sample(_tasks(), SIGNED.index(word))
        if _task(path).operands not in WITH_TEXT
        for name in [" ".join(path)]
        for found in _stretched(
            f"{name} sub/a.x",
            (f"{name} {word} sub/a.x", f"{name} sub/a.x {word}", f"{name} -- {word}"),
        )
    ]
    assert stretched == []


def test_each_program_whose_words_all_count_as_files_was_looked_up() -> None:
    free = {path[0] for path in _tasks() if _task(path).operands == "files"}
    assert free <= READ_NO_MODES


def test_a_first_word_that_is_a_mode_is_another_family() -> None:
    cases = table("shell/families.modes", list[tuple[str, str]])
    assert [
        (approved, then) for approved, then in cases if _stretched(approved, (then,)) != []
    ] == []
