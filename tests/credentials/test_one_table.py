"""Names of files that hold credentials stand in one table: no other module has a list of them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from ironcurtain_proxy.credentials import keys, named_in, places
from tests.source import PACKAGE, modules, one_worker

_OTHERWISE: Final = {
    "facts/meanings.py": "what the settings of package managers do",
    "hooks/gemini.py": "files of a project from which the client takes its settings",
    "model/condition_reading.py": "two examples in a message",
}
"""Modules that name two of them and mean something else."""
_WORD: Final = re.compile(r"[\w.~/-]{3,}")


def _texts(module: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """The texts of each statement that gives a value, without docstrings."""
    for one in ast.walk(module):
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                continue
            below = [each for each in ast.walk(one) if isinstance(each, ast.Constant)]
            yield one.lineno, [each.value for each in below if isinstance(each.value, str)]


_is_named: Final = cache(named_in)


def _lists_in(module: ast.Module) -> list[int]:
    """The lines on which several names of credentials begin."""
    found: list[int] = []
    for line, texts in _texts(module):
        words = {word for text in texts for word in _WORD.findall(text.replace("\\", ""))}
        named = {word for word in words if _is_named(word)}
        if len(named) > 1:
            found.append(line)
    return found


@one_worker
def test_no_module_has_a_list_of_its_own() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path, module in modules().items()
        if (lines := _lists_in(module))
    }
    assert found.keys() == _OTHERWISE.keys(), found


@pytest.mark.parametrize(
    "source",
    [
        'KEPT = frozenset({".ssh", ".kube"})',
        'KEYS: Final = (".gnupg", "x/.aws")',
        r'SECRETS = re.compile(r"\.ssh/|id_rsa")',
        'def f():\n    return name in [".netrc", "id_ed25519"]',
    ],
)
def test_a_new_list_is_found(source: str) -> None:
    assert _lists_in(ast.parse(source))
    assert not _lists_in(ast.parse('X = (".ssh", ".config", "credentials of the user")'))


def test_the_keys_are_places() -> None:
    assert {one.path for one in places()}.issuperset(keys())
    assert keys()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("send ~/.ssh/id_rsa along", "~/.ssh/id_rsa"),
        ("the file .env, please", ".env"),
        ("read id_ed25519.", "id_ed25519."),
        ("/home/x/.kube/config", "/home/x/.kube/config"),
        ("attach .git-credentials", ".git-credentials"),
        ("set process.env first", None),
        ("copy .env.example", None),
        ("the credentials of the user, a box-shadow, primary_key and token.json", None),
        ("POST /v1/credentials", None),
    ],
)
def test_a_text_names_a_credential_only_by_a_name_that_is_one(text: str, named: str | None) -> None:
    found = named_in(text)
    assert (found and text[found[0] : found[1]]) == named
