"""The default policy against calls that a person has decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ironcurtain_proxy.cli.decide import Kernel
from ironcurtain_proxy.config.policy.engine_file import LoadedEngine
from ironcurtain_proxy.config.policy.lint import lint_rules
from ironcurtain_proxy.config.policy.policy_file import SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.document import Report, RulePlace
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.values import Json

TOP = Path(__file__).parents[2]
CALLS = yaml.safe_load((Path(__file__).parent / "decided-calls.yaml").read_text("utf-8"))


def sentence(case: dict[str, Json]) -> str:
    return f"{case['call']} {case.get('why', case['arguments'])}: {case['decision']}"


def placed(value: Json, home: Path) -> Json:
    if isinstance(value, str):
        return value.replace("{home}", str(home))
    if isinstance(value, list):
        return [placed(item, home) for item in value]
    if isinstance(value, dict):
        return {key: placed(item, home) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home").resolve()
    for directory in ("project/repo/.git/hooks", "documents", ".ssh"):
        (home / directory).mkdir(parents=True)
    (home / "project/out").symlink_to(home / "documents")
    (home / "project/settings").symlink_to(home / "project/.env")
    (home / "project/linked").mkdir()
    (home / "project/linked/.env").symlink_to(home / "project/production")
    return home


@pytest.fixture(scope="module")
def kernel(home: Path) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        settings = load_settings({"HOME": str(home), "ALLOWED_DIRECTORY": str(home / "project")})
        engine = LoadedEngine(loaded=load_policy(settings), home=home)
        yield Kernel.of(engine, check_schemas=True)


@pytest.mark.requirement("C-19", "C-20", "C-21", "C-22", "C-24")
@pytest.mark.parametrize("case", CALLS, ids=sentence)
def test_a_decided_call_gets_its_decision(
    case: dict[str, Json], kernel: Kernel, home: Path
) -> None:
    server, tool = str(case["call"]).split("/")
    arguments = placed(case["arguments"], home)
    assert isinstance(arguments, dict)
    decision = kernel.decide(server, tool, arguments)
    assert (effect_of(decision), decision.ground.rule) == (case["decision"], case["rule"])


def test_every_rule_of_the_default_policy_decides_a_call_that_a_person_can_read() -> None:
    settings = load_settings({"HOME": "/nonexistent"})
    decided = {case["rule"] for case in CALLS}
    # The most severe role speaks first: these are masked wherever reading escalates too.
    masked = {
        "escalate-delete-outside-workspace",
        "escalate-git-change-outside-workspace",
        "escalate-git-history-outside-workspace",
    }
    # Rules of resources and prompts decide in `tests/e2e/test_operations.py`.
    rules = load_policy(settings).policy.rules
    names = {rule.name for rule in rules if rule.prompts is None and rule.uris is None}
    assert names - decided <= masked


def test_the_packaged_policy_is_the_one_at_the_top() -> None:
    packaged = SHIPPED / "compiled-policy.json"
    assert packaged.is_symlink()
    assert packaged.resolve() == TOP / "compiled-policy.json"


def test_the_default_policy_has_nothing_suspicious() -> None:
    """G33: shipped files do not go stale."""
    loaded = load_policy(load_settings({"HOME": "/nonexistent"}))
    report = Report()
    places = [
        RulePlace("compiled-policy.json", ("rules", i)) for i, _ in enumerate(loaded.policy.rules)
    ]
    lint_rules(loaded.policy.rules, loaded.annotations, places, report)
    assert report.problems == ()


def test_every_rule_says_why_in_whole_sentences() -> None:
    for rule in load_policy(load_settings({"HOME": "/nonexistent"})).policy.rules:
        for text in (rule.description, rule.principle, rule.reason):
            assert text.endswith(".")
            assert text[0].isupper()


def test_every_shipped_tool_is_decided_by_a_rule_or_an_invariant() -> None:
    loaded = load_policy(load_settings({"HOME": "/nonexistent"}))
    named = {
        (server, tool)
        for rule in loaded.policy.rules
        for server in rule.servers or ()
        for _, tool in loaded.annotations
        if rule.tools is None or tool in rule.tools
    }
    unruled = {
        key
        for key in loaded.annotations
        if key not in named and key[1] != "list_allowed_directories"
    }
    assert unruled == set()
