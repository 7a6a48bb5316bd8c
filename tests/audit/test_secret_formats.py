"""What programs and providers call a secret is masked, and what is none is not."""

import re
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.audit.redaction import is_suspicious, redact_text
from ironcurtain_proxy.audit.secrets import redact_keys
from scripts import provider_keys
from tests.tables import table

FORMS = Path(__file__).with_name("secret_formats.txt").read_text("utf-8").splitlines()
MARKED = [line.replace("⏎", "\n") for line in FORMS if not line.startswith("#")]
MOST_MISSED = 3
"""A password in the quoted commands of lftp and expect, and a line of ~/.pgpass by itself."""


def shown(marked: str) -> bool:
    """Whether a record would show a secret of this form."""
    text = re.sub("[«»]", "", marked)
    if not is_suspicious(orjson.dumps({"text": text})):
        return True
    masked = redact_text(text)
    return any(secret in masked for secret in re.findall("«(.*?)»", marked, re.DOTALL))


def test_of_all_forms_nearly_none_is_shown() -> None:
    missed = [marked for marked in MARKED if shown(marked)]
    assert len(MARKED) > 440
    assert len(missed) <= MOST_MISSED, missed


def test_what_is_masked_once_stays_as_it_is() -> None:
    for marked in MARKED:
        masked = redact_text(re.sub("[«»]", "", marked))
        assert redact_text(masked) == masked


HARMLESS = table("audit/secret_formats.harmless", list[str])


def test_what_is_no_secret_is_not_masked() -> None:
    assert {text: redact_text(text) for text in HARMLESS} == {text: text for text in HARMLESS}


HOSTILE = (
    *("mysql ", "mysql -p", "docker login ", "curl -u ", "<<< ", "sudo -S ", "echo a ", "echo x |"),
    *("<a ", "<a>", "<password ", "name=", 'name="a" ', "key: \n", "password:\n ", "password '"),
    *("$2b$", "$6$a", "{SHA}", "a:5432:", "identified by ", "code is ", "otp ", "/bot1", '"d":"'),
    *(
        "password is ",
        "login a password ",
        "set password for ",
        "-----BEGIN ",
        "Private-Lines: 1\n",
    ),
    *("\\", "\\'", "'", '"', "a=", "%3D", "password%3D", "rtmp://a/", "sym_encrypt(", "is your "),
)


def test_time_is_linear_whatever_a_text_repeats() -> None:
    """Steps are counted, and not seconds: a tracer cannot see into expressions, so the text is
    long enough for a square to last for ever."""
    for piece in HOSTILE:
        text = piece * ((1 << 15) // len(piece))
        redact_text(text)
        is_suspicious(orjson.dumps({"text": text}))


def test_the_expressions_of_keys_are_those_of_the_table() -> None:
    assert provider_keys.BUILT.read_text("utf-8") == provider_keys.built(), (
        f"run {sys.executable} scripts/provider_keys.py"
    )


@pytest.mark.parametrize("key", ["ghp_" + "a1B2" * 9, "sk_live_" + "4eC3" * 6])
def test_a_key_of_a_provider_keeps_its_ends(key: str) -> None:
    assert redact_keys(f"x {key} y") == f"x {key[:4]}...{key[-4:]} y"
