"""Every key and variable that the program reads stands on the page of settings."""

import ast
import re
from pathlib import Path

from ironcurtain_proxy.config.schemas import schema_of
from ironcurtain_proxy.config.settings import KEYS
from ironcurtain_proxy.front import settings as front

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs/configuration.md").read_text("utf-8")
SERVERS = SETTINGS.partition("\n## Servers\n")[2]
ENGINE = (ROOT / "docs/auto-confirm.md").read_text("utf-8")


def code_of(text: str) -> set[str]:
    """The words inside code, of a line or a block, whole and by their parts."""
    found = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for code in found for word in re.findall(r"[A-Za-z_]\w*(?:\.\w+)*", code)}


def parts_of(words: set[str]) -> set[str]:
    """Each part of a dotted word, too: `oauth.scope` names `oauth` and `scope`."""
    return words | {part for word in words for part in word.split(".")}


def test_every_setting_stands_on_the_page() -> None:
    assert len(KEYS) > 60
    whole = code_of(SETTINGS)
    # In a list or a table of one section its name stands once.
    alone = set(re.findall(r"`\.?(\w+)`", SETTINGS))
    missing = [key for key in KEYS if key not in whole and key.rpartition(".")[2] not in alone]
    assert missing == []


def test_every_key_of_a_server_stands_on_the_page() -> None:
    keys = {key for one in schema_of("servers")["$defs"].values() for key in one["properties"]}
    assert len(keys) > 35
    assert sorted(keys - parts_of(code_of(SERVERS))) == []


def keys_read_at(node: ast.AST) -> list[ast.expr]:
    """Where keys stand: in a call of `object`, in a table of readers, in a list of keys."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".object"):
        return node.args
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_KEYS"):
        return [node.value] if node.value is not None else []
    return []


def test_every_key_of_the_engine_stands_on_its_page() -> None:
    keys = {
        one.value
        for file in (ROOT / "ironcurtain_proxy/config/auto_confirm").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        for place in keys_read_at(node)
        for one in ast.walk(place)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    assert len(keys) > 30
    assert sorted(keys - parts_of(code_of(ENGINE))) == []


def test_every_variable_of_the_front_stands_on_the_page() -> None:
    names = (front.SOCKET, front.PORT, front.PORT_FILE, front.TOKEN, front.TOKENS_FILE)
    assert [name for name in names if f"`{name}`" not in SETTINGS] == []
