"""What is hidden and what is not there: the same answer, by the same steps."""

import asyncio  # noqa: TID251  whose step it is
import sys
from types import FrameType

import pytest

import ironcurtain_proxy
from ironcurtain_proxy import TrustedProcess
from ironcurtain_proxy.agent.operations import REQUESTS
from ironcurtain_proxy.model.operation import Method
from ironcurtain_proxy.model.reply import Reply
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.wiring.proxy import Proxy
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message, RawClient
from tests.e2e.test_operations import SAID, TOOLS, add_whole

pytestmark = pytest.mark.anyio

PACKAGE = str(ironcurtain_proxy.__path__[0])
CIRCUMSTANCES = (f"{PACKAGE}/audit/", f"{PACKAGE}/jsonrpc/batch.py")
"""Steps that follow from the machine, whatever the request is: the log is written by the loop or by
a thread, as the disk answers. The table of mounts is read again where anybody mounted."""
BELL = "bad\x07name"

Request = tuple[Method, Message]


def template(uri: str) -> Request:
    argument: Json = {"name": "name", "value": "a"}
    return "completion/complete", {
        "ref": {"type": "ref/resource", "uri": uri},
        "argument": argument,
    }


def completion(prompt: str) -> Request:
    argument: Json = {"name": "name", "value": "a"}
    return "completion/complete", {
        "ref": {"type": "ref/prompt", "name": prompt},
        "argument": argument,
    }


PAIRS: list[tuple[Request, Request]] = [
    (("resources/read", {"uri": "secret://key"}), ("resources/read", {"uri": "secret://nix"})),
    (
        ("resources/subscribe", {"uri": "secret://key"}),
        ("resources/subscribe", {"uri": "secret://nix"}),
    ),
    (
        ("resources/read", {"uri": "file:///etc/shadow"}),
        ("resources/read", {"uri": "file:///etc/passwd"}),
    ),
    (
        ("resources/read", {"uri": "ui://view/other"}),
        ("resources/read", {"uri": "ui://view/ather"}),
    ),
    (("prompts/get", {"name": "unknown"}), ("prompts/get", {"name": "unheard"})),
    (completion("unknown"), completion("unheard")),
    (template("secret://{name}"), template("sacret://{name}")),
    (
        ("tools/call", {"name": f"{BELL}1", "arguments": {}}),
        ("tools/call", {"name": f"{BELL}2", "arguments": {}}),
    ),
]
"""What the server has and the policy does not show, and what the server does not have."""


@pytest.fixture
def whole(installation: Installation) -> Installation:
    """A server with more of everything than the policy shows."""
    hidden: Json = {"name": f"{BELL}1", "inputSchema": {"type": "object"}}
    add_whole(installation, "whole", {**SAID, "tools": [*TOOLS, hidden]})
    installation.rules = [rule("memo", uris={"schemes": ["memo"]}), rule("greet", prompt=["greet"])]
    prompts: list[Json] = [
        {"promptName": "greet", "args": {"name": ["none"]}},
        {"promptName": "open", "args": {"path": ["read-path"]}},
    ]
    entry: Json = {"inputHash": "0", "tools": [], "prompts": prompts}
    installation.write(
        "tool-annotations.json", {"generatedAt": "2026-01-01", "servers": {"whole": entry}}
    )
    return installation


class Steps:
    """The functions of the package that this task enters, in their order.

    A coroutine counts where it begins. Where it goes on after a wait depends on the disk: a slow
    one has a thread write the record.
    """

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._begun: set[FrameType] = set()
        self._task = asyncio.current_task()

    def __enter__(self) -> list[str]:
        sys.setprofile(self._note)
        return self.taken

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if asyncio.current_task() is not self._task:
            return
        # Objects of earlier tests end at any step.
        if event != "call" or frame in self._begun or frame.f_code.co_name == "__del__":
            return
        self._begun.add(frame)
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        is_circumstance = file.startswith(CIRCUMSTANCES) or name.startswith("MountTable.")
        if file.startswith(PACKAGE) and not is_circumstance:
            self.taken.append(f"{file.removeprefix(PACKAGE)}:{name}")


async def carried(proxy: Proxy, request: Request) -> Reply:
    method, params = request
    if method in REQUESTS:
        return await proxy.operations.handle(method, params)
    return await proxy.calls.handle(str(params["name"]), params)


ROUNDS = 5


@pytest.mark.parametrize(
    ("hidden", "missing"), PAIRS, ids=[f"{one[0]}-{i}" for i, (one, _) in enumerate(PAIRS)]
)
async def test_what_is_hidden_takes_the_steps_of_what_is_not_there(
    whole: Installation, hidden: Request, missing: Request
) -> None:
    """The same functions in the same order: the time cannot tell them apart."""
    whole.write_policy()
    environ = {**whole.environment(), "GENERATED_DIR": str(whole.generated)}
    async with TrustedProcess(environ) as kernel:
        await kernel.list_tools()
        proxy = kernel._running()
        for kind in ("prompts", "resources", "resourceTemplates"):
            await proxy.operations.listing(kind)
        steps: list[list[str]] = []
        # The first time, caches are filled. What is mounted meanwhile is read by one of two.
        for request in (hidden, missing) * ROUNDS:
            with Steps() as taken:
                await carried(proxy, request)
            steps.append(taken)
    pairs = [*zip(steps[2::2], steps[3::2], strict=True)]
    assert any(one == other for one, other in pairs), pairs[-1]
    assert len(steps[2]) > 20, "they were counted"


@pytest.fixture
def agent(whole: Installation) -> RawClient:
    first = whole.start()
    first.result(first.request("prompts/list"))
    first.close()
    # Then one prompt without an annotation, and one that the policy denies, are held.
    prompts: list[Json] = [
        {"name": "greet"},
        {"name": "open", "title": "changed"},
        {"name": "unknown", "title": "changed"},
    ]
    add_whole(whole, "whole", {**SAID, "prompts": prompts})
    return whole.start()


def test_an_annotated_a_held_and_a_missing_prompt_that_is_not_listed_are_answered_alike(
    agent: RawClient, whole: Installation
) -> None:
    listed = agent.result(agent.request("prompts/list"))
    assert listed == {"prompts": [{"name": "greet"}]}
    for request in (lambda name: ("prompts/get", {"name": name}), completion):
        answers = [agent.answer(agent.request(*request(name))) for name in ("open", "unknown", "x")]
        assert len({str(one["error"]) for one in answers}) == 1
    rules = [
        str(one["policyDecision"]["rule"])  # type: ignore[index,call-overload]
        for one in whole.outcomes()
    ]
    assert {"default-deny", "missing-annotation"} <= {*rules}, "the record says why"
