"""The model's name, its log, and what is imported for it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.auto_approver.intent import ANSWER_SCHEMA, INVALID, AutoApproveContext
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, consult, create_model
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.llm.litellm_model import LitellmModel, LlmLog, ModelId, parse_model_id
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.escalation import Approved
from tests.auto_approver.test_reviewer import PUSH, SCENARIOS, Session
from tests.program import PATIENCE
from tests.tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

# --- the model's name, the log, the import -------------------------------------------------------


@pytest.mark.requirement("A-14", "A-30", "A-49", "A-61")
def test_a_model_is_named_by_provider_and_model() -> None:
    assert parse_model_id("anthropic:claude-haiku-4-5") == ModelId("anthropic", "claude-haiku-4-5")
    assert parse_model_id("openai:org/model:tag") == ModelId("openai", "org/model:tag")
    assert AutoApproverConfig().model_id == "anthropic:claude-haiku-4-5"


@pytest.mark.requirement("A-85")
@pytest.mark.parametrize(
    "text", table("auto_approver/model_library.another_name_is_an_error", list[str])
)
def test_another_name_is_an_error_of_configuration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        create_model(AutoApproverConfig(model_id=text), "")


def test_the_key_is_in_no_representation() -> None:
    assert "s3cret" not in repr(
        LitellmModel(answer_schema=ANSWER_SCHEMA, model_id=ModelId("openai", "x"), api_key="s3cret")
    )


async def test_a_log_that_cannot_be_written_is_said_once_and_matters_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real = tmp_path / "real"
    real.touch()
    link = tmp_path / "link"
    link.symlink_to(real)
    session = Session(log=LlmLog(link))
    assert isinstance(await session.ask(), Approved)
    session.said = UserMessage(PUSH.message, "2")
    assert isinstance(await session.ask(), Approved)
    assert real.read_bytes() == b""
    assert sum("not logged" in one.getMessage() for one in caplog.records) == 1


async def test_a_pipe_in_the_place_of_the_log_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert isinstance(await Session(log=LlmLog(tmp_path / "pipe")).ask(), Approved)


BARE = """
import sys
import ironcurtain_proxy.cli.auto_approve, ironcurtain_proxy.wiring, ironcurtain_proxy.cli.serve
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
create_model(AutoApproverConfig(enabled=True), "key")
print(sorted(name for name in ("litellm", "openai", "httpx") if name in sys.modules))
"""


def test_nothing_imports_the_model_library_before_a_model_is_asked() -> None:
    found = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert "litellm" not in found.stdout
    assert "openai" not in found.stdout


@pytest.mark.requirement("A-62")
def test_every_model_is_made_in_the_one_module_that_knows_the_library() -> None:
    package = Path(__file__).parents[2] / "ironcurtain_proxy"
    imports = re.compile(r"^\s*(?:import|from) (?:litellm|openai|anthropic)\b", re.MULTILINE)
    knowing = [one for one in package.rglob("*.py") if imports.search(one.read_text())]
    assert knowing == [package / "llm/litellm_model.py"]


def test_the_word_for_no_answer_is_that_of_the_document() -> None:
    assert INVALID.endswith("escalating to human")


@pytest.mark.requirement("A-87", "A-88")
@pytest.mark.skipif(
    os.environ.get("INTEGRATION_TEST") != "true",
    reason="asks a real model: INTEGRATION_TEST=true, AUTO_APPROVE_MODEL_ID, AUTO_APPROVE_API_KEY",
)
async def test_a_live_model_decides_the_twenty_scenarios_rightly() -> None:
    lines = (
        Path(__file__).parents[2] / "ironcurtain_proxy/auto_approver/shipped/intents.jsonl"
    ).read_bytes()
    twenty = [one["id"] for one in map(orjson.loads, lines.splitlines()) if "kind" in one]
    assert len(twenty) >= 20
    config = AutoApproverConfig(
        enabled=True,
        model_id=os.environ.get("AUTO_APPROVE_MODEL_ID", AutoApproverConfig().model_id),
        api_base=os.environ.get("AUTO_APPROVE_API_BASE"),
    )
    model = create_model(config, os.environ.get("AUTO_APPROVE_API_KEY", ""))
    assert model is not None
    wrong = []
    for one in (SCENARIOS[name] for name in twenty):
        context = AutoApproveContext(
            user_message=one.message,
            tool_name=f"{one.escalation.server}/{one.escalation.tool}",
            escalation_reason=one.escalation.ground.reason,
        )
        # What hangs on arguments the model is not shown: the target check decides that.
        result = (await consult(context, model)).result
        if result.decision != one.label and one.category != "other target":
            wrong.append((one.id, result))
    assert wrong == []
