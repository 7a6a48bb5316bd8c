"""The libraries of models take seconds to import; that time is not the model's."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import AROUND, shipped_scenarios
from ironcurtain_proxy.auto_approver.reviewer import AutoApprover, AutoApproverConfig
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED
from ironcurtain_proxy.auto_confirm.reviewers.model import ModelReviewer
from ironcurtain_proxy.auto_confirm.reviewers.process import redact
from ironcurtain_proxy.llm.litellm_model import Completion
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling, Unreachable
from tests.fakes import FakeClock, NothingNew
from tests.mailbox.mailbox_fixture import CLOCK, escalation
from tests.program import PATIENCE

[PUSH] = [one for one in shipped_scenarios() if one.id == "ask-01"]


@dataclass
class SlowToLoad:
    """A model in memory whose library takes longer than the model's own deadline."""

    loading_seconds: float = 1.5
    answer: str = '{"decision":"approve","reasoning":"asked for"}'
    is_loaded: bool = False
    asked: list[str] = field(default_factory=list)

    async def warm(self) -> None:
        await anyio.sleep(self.loading_seconds)
        self.is_loaded = True

    async def complete(self, system: str, prompt: str) -> Completion:
        self.asked.append(prompt)
        if not self.is_loaded:
            # As the real one, which is loaded by whoever asks first.
            await self.warm()
        return Completion(text=self.answer)

    async def aclose(self) -> None:
        pass


async def approval_of(model: SlowToLoad, question: Escalation) -> Ruling:
    approver = AutoApprover(
        model=model,
        config=AutoApproverConfig(enabled=True, deadline_seconds=1.0),
        message=lambda: UserMessage(PUSH.message, "1"),
        around=AROUND,
        history=NothingNew(),
        clock=FakeClock(),
    )
    return await approver.ask(question)


@pytest.mark.anyio
async def test_loading_is_not_counted_against_the_auto_approvers_model() -> None:
    model = SlowToLoad()
    assert isinstance(await approval_of(model, PUSH.escalation), Approved)


@pytest.mark.anyio
async def test_loading_is_not_counted_against_a_reviewing_model() -> None:
    model = SlowToLoad(answer='{"decision":"approve","reason":"fine"}')
    reviewer = ModelReviewer(
        name="wrapper_claude", model=model, clock=CLOCK, redact=redact, deadline_seconds=1.0
    )
    briefing = replace(UNDECIDED, operation="read", risk=10, factors=(), reason="asked")
    assert isinstance(await reviewer.ask(escalation(), briefing), Approved)


@pytest.mark.anyio
async def test_a_library_that_never_loads_leaves_time_for_somebody_else() -> None:
    soon = FakeClock().now() + timedelta(seconds=0.4)
    model = SlowToLoad(loading_seconds=1000.0)
    ruling = await approval_of(model, replace(PUSH.escalation, deadline=soon))
    assert ruling == Unreachable()


"""On a busy machine the library takes a minute."""

LOADING = """
import faulthandler, gc, os, sys
faulthandler.dump_traceback_later(140)  # where it hangs, if it does
workspace, *providers = sys.argv[1:]
os.chdir(workspace)
reached = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        reached.append((event, str(args[-1] if event == "socket.connect" else args[0])))
sys.addaudithook(hook)
import anyio
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
anyio.run(create_model(AutoApproverConfig(enabled=True), "key").warm)
print("loaded", reached, os.environ.get("PLANTED"), "litellm" in sys.modules, flush=True)

from tests.llm.scripted_model import says, scripted_model

async def ask(provider):
    with scripted_model(says("approve")) as server:
        base = f"{server.url}/v1" if provider == "openai" else server.url
        config = AutoApproverConfig(enabled=True, model_id=f"{provider}:local", api_base=base)
        model = create_model(config, "key-123")
        await model.warm()
        before = set(sys.modules)
        completion = await model.complete("system", "prompt")
        imported = set(sys.modules) - before
        is_spared = gc.isenabled() and gc.get_freeze_count() > 100_000
        print(provider, "approve" in completion.text, is_spared, *sorted(imported), flush=True)
        await model.aclose()

for provider in providers:
    anyio.run(ask, provider)
os._exit(0)  # freeing the library takes as long as loading it
"""
"""The library takes seconds: it is loaded once, and the providers asked one after the other.

What the first of them imports counts for the first. No forks: a lock that one of the library's
threads held at the fork would never be released in it.
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was told of the loading, and of each provider's first question."""
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / ".env").write_text("PLANTED=by-the-agent\nOPENAI_BASE_URL=http://evil.example\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("LITELLM")}
    found = subprocess.run(
        [sys.executable, "-c", LOADING, str(workspace), "openai", "anthropic"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = [line.partition(" ") for line in found.stdout.splitlines()]
    return {name: rest for name, _, rest in lines}


def test_loading_the_library_reaches_for_no_network_and_no_env_file(told: dict[str, str]) -> None:
    """The workspace may be the working directory, and the agent may write there."""
    assert told["loaded"] == "[] None True"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_first_question_imports_next_to_nothing(provider: str, told: dict[str, str]) -> None:
    """What it imports stops the event loop, and the model's deadline pays for it."""
    approved, is_spared, *imported = told[provider].split()
    assert approved == "True"
    assert is_spared == "True", "each collection looks at all of the library"
    assert len(imported) < 40, imported
