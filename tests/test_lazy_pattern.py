"""Expressions that are compiled when they are first used."""

import importlib
import re
from pathlib import Path

import pytest

import ironcurtain_proxy
from ironcurtain_proxy.model.values import _Pattern, lazy


def test_an_expression_is_compiled_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile

    def compiling(pattern: str, flags: int) -> re.Pattern[str]:
        compiled.append(pattern)
        return real(pattern, flags)

    monkeypatch.setattr("ironcurtain_proxy.model.values.re.compile", compiling)
    found = lazy("a+", re.IGNORECASE)
    assert found.pattern == "a+"
    assert compiled == []
    assert found.fullmatch("AAA") is not None
    assert found.fullmatch("b") is None
    assert compiled == ["a+"]


def test_what_is_used_later_is_the_pattern_itself() -> None:
    found = lazy(rb"(?P<word>[a-z]+)")
    assert found.search(b"1 ab") is not None
    assert found.groupindex == {"word": 1}
    assert found.sub(b"x", b"ab cd") == b"x x"


def test_a_wrong_expression_fails_at_its_first_use() -> None:
    with pytest.raises(re.error):
        lazy("(").match("")


def test_every_lazy_expression_of_the_program_can_be_compiled() -> None:
    """Nothing else would notice a mistake in one that no test uses."""
    package = Path(ironcurtain_proxy.__file__).parent
    names = [
        ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for file in package.rglob("*.py")
        if " = lazy(" in file.read_text("utf-8")
    ]
    assert names
    for name in names:
        values = vars(importlib.import_module(name)).values()
        found = [one for one in values if isinstance(one, _Pattern)]
        assert found, name
        for one in found:
            re.compile(one.pattern, one._flags)
