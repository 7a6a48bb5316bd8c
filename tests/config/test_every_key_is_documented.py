"""Every key and variable that the program reads stands on the page of settings."""

import re
from pathlib import Path

from ironcurtain_proxy.auto_confirm.engine.settings import EscalationTargets, NightMode
from ironcurtain_proxy.config.auto_confirm import (
    AutoConfirmForm,
    ContextForm,
    NotificationsForm,
    ReviewerForm,
    SafetyRuleForm,
    StoreForm,
)
from ironcurtain_proxy.config.reading.forms import declarations, keys_of_form
from ironcurtain_proxy.config.schemas import schema_of
from ironcurtain_proxy.config.settings import KEYS, SECTIONS
from ironcurtain_proxy.front import guard as front

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
    keys = [key.removeprefix("$") for key in KEYS]
    missing = [key for key in keys if key not in whole and key.rpartition(".")[2] not in alone]
    assert missing == []


def test_every_key_of_a_server_stands_on_the_page() -> None:
    keys = {key for one in schema_of("servers")["$defs"].values() for key in one["properties"]}
    assert len(keys) > 35
    assert sorted(keys - parts_of(code_of(SERVERS))) == []


def test_every_key_of_the_engine_stands_on_its_page() -> None:
    forms = (
        *(AutoConfirmForm, ContextForm, EscalationTargets, NightMode, SafetyRuleForm, StoreForm),
        *(ReviewerForm, NotificationsForm),
    )
    keys = {key for form in forms for key in keys_of_form(form)}
    assert len(keys) > 38
    assert sorted(keys - parts_of(code_of(ENGINE))) == []


def test_every_variable_of_the_front_stands_on_the_page() -> None:
    names = (front.SOCKET, front.PORT, front.PORT_FILE, front.TOKEN, front.TOKENS_FILE)
    assert [name for name in names if f"`{name}`" not in SETTINGS] == []


def said_of(default: object) -> str:
    """Return how the page writes a default."""
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case float():
            return format(default, "g")
        case int():
            return str(default)
        case _:
            return f"`{default}`"


def test_the_page_names_the_default_that_a_setting_declares() -> None:
    lines = re.sub(r"\n  +", " ", SETTINGS.partition("\n## Servers\n")[0]).splitlines()
    bullets = {found[1]: line for line in lines if (found := re.match(r"- `([\w.]+)`", line))}
    defaults = {
        section + one.key: said_of(one.default)
        for section, kind in SECTIONS
        for one in declarations(kind)
        if isinstance(one.default, bool | int | float | str)
        and one.default != ""
        and "notice" not in one.key
    }
    checked = bullets.keys() & defaults.keys()
    assert len(checked) > 30
    assert [
        f"{key}: {defaults[key]}"
        for key in sorted(checked)
        if not re.search(rf"Default: {re.escape(defaults[key])}(\W|$)", bullets[key])
    ] == []
