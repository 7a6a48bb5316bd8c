"""One table of credentials: every reader of it answers alike, for each entry and its spellings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.audit.commands import writes_credentials
from ironcurtain_proxy.auto_confirm.engine.interaction import FilesFound, SessionPlaces
from ironcurtain_proxy.config.policy.policy_file import POLICY_NAME, SHIPPED, PolicyReader
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.credentials import (
    TREE,
    CredentialPlace,
    examples,
    is_credential,
    names,
    places,
)
from ironcurtain_proxy.decision.rules import covers
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.request import PathValue, Word
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.places import names_a_secret

HOME: Final = "/home/u"
WORKSPACE: Final = "/home/u/project"
_LOOSE: Final = (".*", ".yaml")
"""In a command `secrets.word` may be a variable of a program: a file has one of some endings."""


def _rules() -> tuple[Rule, ...]:
    report = Report()
    reader = PolicyReader(
        home=Path(HOME), workspace=RealPath.from_text(WORKSPACE), purpose="enforce", report=report
    )
    read = reader.read(SHIPPED / POLICY_NAME)
    assert read is not None
    report.raise_errors()
    return tuple([rule for rule in read.rules if rule.names is not None])


RULES: Final = _rules()


def policy(path: str) -> bool:
    value = PathValue(path, RealPath.from_text(path))
    asked = {rule.name for rule in RULES if covers(rule, value)}
    assert len(asked) in {0, len(RULES)}, "reading and changing are asked about alike"
    return bool(asked)


def shell(path: str) -> bool:
    relative = path.removeprefix(f"{WORKSPACE}/")
    at_home = path.replace(HOME, "~", 1) if path.startswith(HOME) else path
    said = {names_a_secret([Word(text)]) for text in (relative, at_home)}
    return True in said


def engine(path: str) -> bool:
    real = RealPath.from_text(path)
    session = SessionPlaces(
        workspace=RealPath.from_text(WORKSPACE),
        home=RealPath.from_text(HOME),
        found=FilesFound(files=frozenset({real})),
    )
    return session.is_secret(real)


def redaction(path: str) -> bool:
    return writes_credentials({"path": path, "content": "x"})


READERS: Final[tuple[Callable[[str], bool], ...]] = (policy, shell, engine, redaction)


def _spelled(pattern: str) -> Iterator[str]:
    """Names that a pattern describes."""
    if pattern.endswith(TREE):
        yield from (one + end for one in _spelled(pattern[:-3]) for end in ("", "/x", "/x/y.txt"))
        return
    for middle in ("x", "x.y", "") if "*" in pattern else ("",):
        if pattern.endswith(_LOOSE[0]):
            yield pattern.removesuffix(_LOOSE[0]).replace("*", middle or "x") + _LOOSE[1]
        else:
            yield pattern.replace("*", middle)


def _of_names() -> list[str]:
    spelled = [one for name in names() for one in _spelled(name)]
    return sorted({one for one in spelled if not is_credential("/" + one) or one})


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_each_reader_knows_every_name_at_every_place_in_any_case(
    reader: Callable[[str], bool],
) -> None:
    unknown = [
        path
        for name in _of_names()
        for directory in (WORKSPACE, f"{WORKSPACE}/sub/dir", "/srv/other")
        for path in (f"{directory}/{name}", f"{directory}/{name.upper()}")
        if not reader(path)
    ]
    assert unknown == []


def _below(place: CredentialPlace) -> Iterator[str]:
    for below in ("", "/x", "/x/y/z.json"):
        yield f"{HOME}/{place.path}{below}"
        if not place.only_at_home:
            yield f"{WORKSPACE}/{place.path}{below}"
            yield f"{WORKSPACE}/{place.path.upper()}{below}"


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_each_reader_knows_the_names_that_programs_give_to_keys(
    reader: Callable[[str], bool],
) -> None:
    files = ["prod.secrets.yaml", "accessKeys.csv", "shop-firebase-adminsdk-x1.json", "github_rsa",
             "deploy_key", "wg0.conf", "vault_pass.txt", "UTC--2020-01-01--ab", "htpasswd",
             "recovery-codes.txt", "msal_token_cache.bin", "shadow.bak", "gha-creds-0a1b.json",
             ".vscode/sftp.json", ".kamal/secrets", "team-openrc.sh", "run/secrets/db_password",
             "kubernetes/admin.conf", "home.nmconnection",
             ".env/production", "credentials/prod.json", "credentials/sub/x.py", ".env.local/a",
             "server.pem/chain", "id_rsa.old/key", ".NetRC/a", "src/../.env/b"]  # fmt: skip
    assert [one for one in files if not reader(f"{WORKSPACE}/{one}")] == []


@pytest.mark.parametrize("reader", READERS[:3], ids=lambda reader: reader.__name__)
def test_each_reader_knows_every_place_and_all_below_it(reader: Callable[[str], bool]) -> None:
    unknown = [path for place in places() for path in _below(place) if not reader(path)]
    assert unknown == []


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_no_reader_takes_an_example_or_an_ordinary_file_for_a_secret(
    reader: Callable[[str], bool],
) -> None:
    plain = [one.replace("*", "x") for one in sorted(examples())]
    plain += ["README.md", "src/main.py", "package.json", "Makefile", ".gitignore", ".gitconfig",
              ".github/workflows/ci.yml", "config.json", ".claude/settings.json", "monkey.txt",
              "tokens.css", "environment.ts", "key.ts", ".circleci/config.yml",
              ".vscode/launch.json", "src/secrets/__init__.py", "docs/credentials-guide.md",
              "snap/snapcraft.yaml", "src/credentials/index.ts", "src/shadow/root.ts",
              "sudoers/a.c",
              ".cursor/rules/a.mdc", ".docker/Dockerfile", ".gemini/settings.json"]  # fmt: skip
    assert [one for one in plain if reader(f"{WORKSPACE}/{one}")] == []


def test_a_workspace_in_a_place_of_the_table_is_the_agent_s() -> None:
    reader = PolicyReader(
        home=Path(HOME), workspace=RealPath.from_text(f"{HOME}/.claude/projects/p"), report=Report()
    )
    read = reader.read(SHIPPED / POLICY_NAME)
    assert read is not None
    path = f"{HOME}/.claude/projects/p/main.py"
    named = [rule for rule in read.rules if rule.names is not None]
    assert not any(covers(rule, PathValue(path, RealPath.from_text(path))) for rule in named)
