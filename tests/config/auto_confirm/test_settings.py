"""The section `auto_confirm`, as the document writes it, in YAML and in JSON."""

from pathlib import Path

import pytest
from msgspec import UNSET

from ironcurtain_proxy.auto_confirm.engine.settings import EscalationTargets, NightMode, SafetyRule
from ironcurtain_proxy.config.auto_confirm import AutoConfirmConfig, ContextForm
from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.values import Json
from tests.config.files import write
from tests.tables import table

DOCUMENT = """\
mcpServers: {x: {command: x}}
auto_confirm:
  enabled: true
  intelligent_escalation: true
  escalation_targets:
    high_risk: "architect_manager"
    medium_risk: "wrapper_claude"
    low_risk: "auto_approve"
  safety_rules:
    - pattern: "file_edit_in_tmp"
      action: "auto_approve"
    - pattern: "git_delete_force"
      action: "escalate"
      target: "architect_manager"
  night_mode:
    enabled: true
    start_hour: 21
    end_hour: 6
    action: "escalate"
  escalation_timeout_minutes: 5
  fallback_escalation: "claude_code_high_level"
"""


def loaded(tmp_path: Path, section: Json) -> AutoConfirmConfig | None:
    config = write(
        tmp_path / "c.json", {"mcpServers": {"x": {"command": "x"}}, "auto_confirm": section}
    )
    return load_settings({"HOME": str(tmp_path)}, config).auto_confirm


def refusal(tmp_path: Path, section: Json) -> str:
    with pytest.raises(ProblemsError) as caught:
        loaded(tmp_path, section)
    return str(caught.value)


@pytest.mark.requirement(
    *("B-151", "B-152", "B-153", "B-154", "B-155", "B-156", "B-157", "B-158", "B-159"),
    *("B-160", "B-161", "B-162", "B-163", "B-164"),
)
def test_the_document_s_own_configuration_is_read_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(DOCUMENT)
    config = load_settings({"HOME": str(tmp_path)}, file).auto_confirm
    assert config is not None
    engine = config.engine
    assert engine.enabled is True
    assert engine.intelligent_escalation is True
    assert engine.escalation_targets == EscalationTargets(
        high_risk="architect_manager", medium_risk="wrapper_claude", low_risk="auto_approve"
    )
    assert engine.safety_rules == (
        SafetyRule(pattern="file_edit_in_tmp", action="auto_approve"),
        SafetyRule(pattern="git_delete_force", action="escalate", target="architect_manager"),
    )
    assert engine.night_mode == NightMode(
        enabled=True, start_hour=21, end_hour=6, action="escalate"
    )
    assert engine.escalation_timeout_minutes == 5
    assert engine.fallback_escalation == "claude_code_high_level"


def test_without_the_section_there_is_no_engine(tmp_path: Path) -> None:
    config = write(tmp_path / "c.json", {"mcpServers": {"x": {"command": "x"}}})
    assert load_settings({"HOME": str(tmp_path)}, config).auto_confirm is None


@pytest.mark.parametrize("section", [{}, {"night_mode": {}}, {"enabled": False}])
def test_a_section_that_does_not_say_so_does_not_switch_it_on(
    tmp_path: Path, section: Json
) -> None:
    config = loaded(tmp_path, section)
    assert config is not None
    assert config.engine.enabled is False


@pytest.mark.parametrize(
    ("section", "words"),
    table(
        "config/auto_confirm/settings.what_makes_no_sense_or_approves_too",
        list[tuple[dict[str, Json], str]],
    ),
    ids=str,
)
@pytest.mark.requirement("B-172")
def test_what_makes_no_sense_or_approves_too_much_is_refused_at_load(
    tmp_path: Path, section: Json, words: str
) -> None:
    assert words in refusal(tmp_path, section)


PROCESS: Json = {"name": "wrapper_claude", "kind": "process", "command": ["x"]}
MODEL: Json = {"name": "wrapper_claude", "kind": "model", "modelId": "openai:y"}


def reviewer_named(name: str) -> dict[str, Json]:
    return {"reviewers": [{"name": name, "kind": "human"}]}


def reviewer(base: Json, **keys: Json) -> Json:
    assert isinstance(base, dict)
    return {"reviewers": [{**base, **keys}]}


def test_what_a_process_speaks_is_read(tmp_path: Path) -> None:
    said: list[tuple[object, object]] = []
    for keys in ({}, {"protocol": "lines"}, {"protocol": "mcp"}, {"protocol": "mcp", "tool": "t"}):
        config = loaded(tmp_path, reviewer(PROCESS, **keys))
        assert config is not None
        said.append((config.reviewers[0].protocol, config.reviewers[0].tool))
    assert said == [(UNSET, UNSET), ("lines", UNSET), ("mcp", UNSET), ("mcp", "t")]


HUMAN: Json = {"name": "wrapper_claude", "kind": "human"}


@pytest.mark.parametrize("base", [PROCESS, MODEL], ids=["process", "model"])
def test_a_reviewer_of_whom_nobody_knows_what_it_may_review_is_refused(
    base: Json, tmp_path: Path
) -> None:
    """Nobody would ever ask it."""
    words = "reviewers[0]: needs a session_type"
    assert words in refusal(tmp_path, reviewer(base, name="night-shift"))
    assert words in refusal(tmp_path, reviewer(base, session_type="unknown"))
    assert loaded(tmp_path, reviewer(base, name="night-shift", session_type="architect"))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            {"escalation_targets": {"high_risk": "archtect"}, **reviewer_named("architect")},
            '"archtect" is not among the reviewers: a person is asked (did you mean "architect"?)',
        ),
        ({"fallback_escalation": "nobody"}, '"nobody" is not among the reviewers'),
    ],
)
def test_a_target_that_is_no_reviewer_is_a_warning(
    section: Json, words: str, tmp_path: Path
) -> None:
    config = write(
        tmp_path / "c.json", {"mcpServers": {"x": {"command": "x"}}, "auto_confirm": section}
    )
    warnings = load_settings({"HOME": str(tmp_path)}, config).warnings
    assert any(words in str(one) for one in warnings), [str(one) for one in warnings]


@pytest.mark.parametrize(
    ("section", "words"),
    table(
        "config/auto_confirm/settings.what_serve_would_refuse_is_refused",
        list[tuple[dict[str, Json], str]],
    ),
)
def test_what_serve_would_refuse_is_refused_by_its_place(
    section: Json, words: str, tmp_path: Path
) -> None:
    assert words in refusal(tmp_path, section)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (reviewer(PROCESS, mailbox="m"), "reviewers[0].mailbox: is not for a process"),
        (reviewer(PROCESS, modelId="openai:y"), "modelId: is not for a process"),
        (reviewer(MODEL, mailbox="m"), "mailbox: is not for a model"),
        (reviewer(MODEL, command=["x"]), "command: is not for a model"),
        (reviewer(MODEL, session="s"), "session: is not for a model"),
        (reviewer(HUMAN, command=["x"]), "command: is not for a human"),
        (reviewer(HUMAN, env={}), "env: is not for a human"),
        (reviewer(HUMAN, modelId="openai:y"), "modelId: is not for a human"),
        (reviewer(HUMAN, session="s"), "session: is not for a human"),
        (reviewer(HUMAN, session_type="worker"), "session_type: is not for a human"),
        (reviewer(HUMAN, may_deny=False), "may_deny: is for a human with a mailbox"),
        (
            {"notifications": {"kind": "file", "file": "f", "url": "http://x"}},
            'notifications.url: is not for "file"',
        ),
    ],
    ids=str,
)
def test_a_key_that_would_be_ignored_is_refused_by_its_place(
    tmp_path: Path, section: Json, words: str
) -> None:
    assert words in refusal(tmp_path, section)


def test_who_is_told_of_nothing_for_a_while_may_stay_in_the_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"notifications": {"kind": "none", "url": "http://x"}})
    assert config is not None
    assert config.notifications.channels == ()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            reviewer({"name": "wrapper_claude"}, protocol="lines"),
            "protocol: is for a process, not for a human",
        ),
        (reviewer(MODEL, protocol="mcp"), "protocol: is for a process, not for a model"),
        (reviewer(MODEL, tool="t"), 'tool: is for a process with "protocol": "mcp"'),
        (reviewer(MODEL, protocol="mcp", tool="t"), "protocol: is for a process, not for a model"),
        (reviewer(PROCESS, tool="t"), 'tool: is for a process with "protocol": "mcp"'),
        (reviewer(PROCESS, protocol="lines", tool="t"), "tool: is for a process"),
        (reviewer(PROCESS, protocol="http"), 'protocol: "http" is not one of lines, mcp'),
        (reviewer(PROCESS, protocol="mcp", tool=""), "tool: must not be empty"),
        (reviewer(PROCESS, protocol="mcp", tool=["t"]), "tool: must be text"),
    ],
    ids=str,
)
def test_a_protocol_where_none_is_spoken_is_refused_by_its_place(
    tmp_path: Path, section: Json, words: str
) -> None:
    assert f"auto_confirm.reviewers[0].{words}" in refusal(tmp_path, section)


@pytest.mark.parametrize(
    ("section", "days"),
    [
        ({}, 90),
        ({"store": {}}, 90),
        ({"store": {"keep_days": 0}}, 0),
        ({"store": {"keep_days": 1}}, 1),
        ({"store": {"url": "postgresql://db/x", "keep_days": 7.5}}, 7.5),
    ],
    ids=str,
)
def test_the_store_keeps_ninety_days_unless_told_otherwise(
    tmp_path: Path, section: Json, days: float
) -> None:
    config = loaded(tmp_path, section)
    assert config is not None
    assert config.keep_days == days


@pytest.mark.requirement("B-48")
def test_where_the_task_should_be_done_is_read(tmp_path: Path) -> None:
    said: Json = {
        "directory": "work",
        "branch": "feature/x",
        "environment": {"TASK": "hunter2"},
        "provider": "anthropic",
    }
    config = loaded(tmp_path, {"context": said})
    assert config is not None
    assert config.context == ContextForm(
        directory=str(tmp_path / "work"),
        branch="feature/x",
        environment={"TASK": "hunter2"},
        provider="anthropic",
    )
    assert "hunter2" not in repr(config)
    assert "auto_confirm.context.branch" in refusal(tmp_path, {"context": {"branch": 1}})
    assert "auto_confirm.context" in refusal(tmp_path, {"context": {"brunch": "x"}})


@pytest.mark.parametrize(("said", "minutes"), [({}, 15), ({"summary_minutes": 0}, 0)])
def test_summaries_come_every_quarter_of_an_hour_or_never(
    said: Json, minutes: float, tmp_path: Path
) -> None:
    config = loaded(tmp_path, {"notifications": said})
    assert config is not None
    assert config.notifications.summary_minutes == minutes


def test_secrets_do_not_stand_in_what_is_printed_of_the_settings(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "store": {"url": "postgresql://u:hunter2@db/x"},
            "notifications": {"kind": "webhook", "url": "https://hooks.example/hunter2"},
            "reviewers": [
                {
                    "name": "wrapper_claude",
                    "kind": "process",
                    "command": ["x"],
                    "env": {"KEY": "hunter2"},
                }
            ],
        },
    )
    assert config is not None
    assert config.store_url == "postgresql://u:hunter2@db/x"
    assert "hunter2" not in repr(config)


@pytest.mark.requirement("B-15")
def test_reviewers_of_the_document_are_what_it_says_unless_the_operator_says_otherwise(
    tmp_path: Path,
) -> None:
    named: Json = [
        {"name": "architect_manager", "kind": "process", "command": ["x"]},
        {"name": "other", "kind": "process", "command": ["x"], "session_type": "manager"},
    ]
    config = loaded(tmp_path, {"reviewers": named})
    assert config is not None
    assert [one.session_type for one in config.engine.reviewers] == ["architect", "manager"]
