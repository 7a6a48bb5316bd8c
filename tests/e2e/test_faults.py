"""A server that crashes, hangs or talks rubbish harms its own calls and nobody else's."""

import os
import signal
from pathlib import Path

import orjson
import pytest

from tests.e2e.installation import Installation
from tests.e2e.process_tree import Watch
from tests.e2e.raw_client import RawClient, at, text, texts
from tests.e2e.servers.scripted import SHOWN
from tests.program import FRESH, wait_until

MEGABYTE = 1 << 20


@pytest.fixture
def pair(installation: Installation) -> Installation:
    """An installation with two servers, `sick` and `well`."""
    installation.add_scripted("sick")
    installation.add_scripted("well")
    installation.allow_scripted("sick", "well")
    return installation


def call_until_it_works(agent: RawClient, name: str) -> None:
    """Call a tool until its server is back; the test's own timeout is the deadline."""
    tries = 0
    while True:
        tries += 1
        result = agent.call(name, {"text": f"try {tries}"})
        if not result.get("isError"):
            assert text(result) == f"try {tries}"
            return
        # The list of tools is asked for meanwhile, so that this is not a busy loop of calls.
        agent.tools()


def test_a_crash_in_the_middle_of_a_call_ends_that_call_and_the_server_comes_back(
    pair: Installation,
) -> None:
    agent = pair.start()
    well = agent.start_call("well__hold", {"key": "k"})
    dead = agent.result(agent.start_call("sick__die"))
    assert dead["isError"] is True
    assert text(dead).startswith("Error: ")
    assert "Traceback" not in text(dead)
    assert text(agent.call("well__answer", {"text": "unharmed"})) == "unharmed"
    call_until_it_works(agent, "sick__answer")
    assert len(agent.tools()) == 2 * len(SHOWN)
    agent.call("well__release", {"key": "k"})
    assert text(agent.result(well)) == "held until now"
    outcome = next(entry for entry in pair.outcomes() if entry["toolName"] == "die")
    assert at(outcome, "result", "status") == "error"


def test_a_server_killed_from_outside_is_started_again(pair: Installation) -> None:
    agent = pair.start()
    first = int(text(agent.call("sick__pid")))
    waiting = agent.start_call("sick__hold", {"key": "k"})
    agent.notification("notifications/message")
    os.kill(first, signal.SIGKILL)
    assert agent.result(waiting)["isError"] is True
    call_until_it_works(agent, "sick__answer")
    assert int(text(agent.call("sick__pid"))) != first


def test_a_guardian_killed_from_outside_takes_its_server_with_it(pair: Installation) -> None:
    agent = pair.start()
    server = int(text(agent.call("sick__pid")))
    children = orjson.loads(text(agent.call("sick__spawn")))
    stat = Path(f"/proc/{server}/stat").read_text(encoding="utf-8")
    guardian = int(stat.rpartition(")")[2].split()[1])
    assert guardian != agent.process.pid
    watch = Watch({guardian, server, *children})
    os.kill(guardian, signal.SIGKILL)
    assert watch.survivors() == set()
    assert text(agent.call("well__answer", {"text": "unharmed"})) == "unharmed"
    call_until_it_works(agent, "sick__answer")


def test_every_call_that_waits_for_a_crashed_server_ends(pair: Installation) -> None:
    agent = pair.start()
    waiting = [agent.start_call("sick__hold", {"key": f"k{turn}"}) for turn in range(20)]
    agent.call("well__answer", {"text": "x"})
    # The call that ends the server is one of those that wait for it.
    for request in [*waiting, agent.start_call("sick__die")]:
        assert agent.result(request)["isError"] is True
    intents = {record["requestId"] for record in pair.records() if record.get("phase") == "intent"}
    assert intents == {record["requestId"] for record in pair.outcomes()}


def test_a_call_that_hangs_is_given_up_at_its_deadline_cancelled_and_not_answered_late(
    pair: Installation,
) -> None:
    agent = pair.start(ESCALATION_TIMEOUT_SECONDS="1")
    late = agent.start_call("sick__hold", {"key": "k"})
    assert agent.result(late)["isError"] is True
    why, note = texts(agent.result(late))
    assert why == 'Error: server "sick" did not answer within 1 s'
    assert "may have carried it out" in note
    agent.call("sick__release", {"key": "k"})
    assert text(agent.call("sick__answer", {"text": "still here"})) == "still here"
    assert agent.order().count(late) == 1
    assert b"notifications/cancelled" in pair.journal_file("sick").read_bytes()


def test_who_gets_no_answer_reads_that_the_call_may_have_been_carried_out(
    pair: Installation,
) -> None:
    agent = pair.start()
    waiting = agent.start_call("sick__hold", {"key": "k"})
    agent.notification("notifications/message")
    agent.start_call("sick__die")
    why, note = texts(agent.result(waiting))
    assert why.startswith('Error: server "sick" ')
    assert "may have carried it out" in note
    assert "Look at what it did before you make the call again" in note
    # What no server had is not said to have been carried out.
    assert "may have" not in "".join(texts(agent.call("sick__forbidden")))


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param("npm warn: hello\n", id="a line of text"),
        pytest.param("\xff\xfe\x00\x80\n", id="no UTF-8"),
        pytest.param("{\n", id="half an object"),
        pytest.param("[1,2]\n17\nnull\n", id="JSON but no message"),
        pytest.param("\n\n\r\n", id="empty lines"),
        pytest.param('{"jsonrpc":"2.0","id":99999,"result":{}}\n', id="an answer to no question"),
        pytest.param('{"jsonrpc":"2.0","id":null,"error":{}}\n', id="an error about nothing"),
        pytest.param('{"jsonrpc":"2.0","method":7}\n', id="a method that is a number"),
        pytest.param('{"jsonrpc":"2.0","method":"notifications/unheard"}\n', id="unknown news"),
        pytest.param(
            '{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}\n', id="a request"
        ),
        pytest.param('{"jsonrpc":"2.0","id":true,"result":{}}\n', id="an id that is true"),
        pytest.param('{"method":{}}\n{"id":{},"result":1}\n', id="odd members"),
        pytest.param('{"id":[1],"method":"ping"}\n{"jsonrpc":"2.0"}\n', id="odd envelopes"),
        pytest.param('{"method":"notifications/progress","params":[]}\n', id="odd params"),
        pytest.param("[" * 5000 + "\n", id="nested without end"),
    ],
)
def test_garbage_between_the_lines_is_dropped(
    garbage: str, agent: RawClient, shared: Installation
) -> None:
    before = len(agent.arrived)
    assert text(agent.call("write", {"latin1": garbage})) == "written"
    assert text(agent.call("answer", {"text": "and on"})) == "and on"
    assert len(agent.arrived) == before + 2


def test_an_answer_that_is_no_utf8_survives_with_a_replacement(agent: RawClient) -> None:
    assert "isError" not in agent.call("blot")
    assert text(agent.call("answer", {"text": "next"})) == "next"


@pytest.mark.parametrize(
    "line", ["[]", "null", '"text"', "{", '{"content":[}', '{"n":NaN}', '{"n":1e999}']
)
def test_a_result_that_is_none_becomes_an_error_of_its_call(line: str, agent: RawClient) -> None:
    answer = agent.answer(agent.start_call("raw", {"line": line}))
    assert at(answer, "result", "isError") is True
    assert "sent an answer that cannot be read" in text(answer["result"])
    assert text(agent.call("answer", {"text": "next"})) == "next"


def test_half_a_surrogate_pair_becomes_a_replacement_in_its_text_alone(agent: RawClient) -> None:
    answer = agent.answer(
        agent.start_call("raw", {"line": '{"n":"a\\ud800b","m":"\\ud83d\\ude00"}'})
    )
    assert answer["result"] == {"n": "a\ufffdb", "m": "\U0001f600"}


def test_an_answer_of_fifty_megabytes_arrives_whole(agent: RawClient) -> None:
    size = 50 * MEGABYTE
    assert len(text(agent.call("fill", {"bytes": size}))) == size


def test_an_answer_beyond_the_cap_is_an_error_that_says_so(pair: Installation) -> None:
    agent = pair.start(MAX_MESSAGE_BYTES=str(MEGABYTE))
    result = agent.call("sick__fill", {"bytes": 50 * MEGABYTE})
    assert result["isError"] is True
    assert "large" in text(result)
    assert text(agent.call("sick__answer", {"text": "on"})) == "on"
    assert len(text(agent.call("sick__fill", {"bytes": MEGABYTE // 2}))) == MEGABYTE // 2


def test_fifty_megabytes_of_garbage_in_one_line_are_dropped(pair: Installation) -> None:
    agent = pair.start(MAX_MESSAGE_BYTES=str(MEGABYTE))
    waiting = agent.start_call("sick__write", {"latin1": "x" * (MEGABYTE // 2), "times": 100})
    assert text(agent.call("well__answer", {"text": "meanwhile"})) == "meanwhile"
    # The answer to the call stands at the end of the same endless line.
    assert agent.result(waiting)["isError"] is True
    assert text(agent.call("sick__answer", {"text": "on"})) == "on"


def test_a_flood_on_stderr_blocks_nobody(pair: Installation) -> None:
    agent = pair.start()
    flood = agent.start_call("sick__stderr", {"text": "complaint\n" * 1000, "times": 2000})
    assert text(agent.call("well__answer", {"text": "meanwhile"})) == "meanwhile"
    assert text(agent.result(flood)) == "complained"
    assert b"complaint" in pair.session_log.read_bytes()


@pytest.mark.requirement("C-34")
def test_a_server_that_does_not_start_is_a_warning_and_the_rest_go_on(
    installation: Installation,
) -> None:
    installation.add_server("absent", ["/nonexistent/program"])
    installation.add_scripted("ends", env={"SCRIPTED_START": "exit"})
    installation.add_scripted("well")
    installation.allow_scripted("well")
    agent = installation.start()
    assert agent.tool_names() == [f"well__{tool}" for tool in SHOWN]
    assert text(agent.call("well__answer", {"text": "alone"})) == "alone"
    said = agent.errors.read_text(encoding="utf-8") + installation.session_log.read_text(
        encoding="utf-8"
    )
    assert "absent" in said
    assert "ends" in said


def test_a_server_that_never_says_hello_does_not_hold_up_the_others(
    installation: Installation,
) -> None:
    installation.add_scripted("mute", env={"SCRIPTED_START": "mute"})
    installation.add_scripted("well")
    installation.allow_scripted("well")
    agent = installation.start()
    assert text(agent.call("well__answer", {"text": "here"})) == "here"


def test_a_call_refused_by_a_dead_server_says_what_to_do(installation: Installation) -> None:
    installation.add_scripted("ends", env={"SCRIPTED_START": "exit"})
    installation.add_scripted("well")
    installation.allow_scripted("ends", "well")
    result = installation.start().call("ends__answer", {"text": "x"})
    assert result["isError"] is True
    assert all("Traceback" not in block for block in texts(result))


@pytest.mark.skipif(
    os.confstr("CS_GNU_LIBC_VERSION") is None, reason="needs the allocator of glibc"
)
def test_a_large_message_does_not_stay_in_memory(pair: Installation) -> None:
    pair.command = FRESH
    agent = pair.start()
    agent.call("well__answer", {"text": "small"})
    before = resident(agent.process.pid)
    for size in (MEGABYTE, 10 * MEGABYTE):
        assert len(text(agent.call("sick__fill", {"bytes": size}))) == size
    wait_until(lambda: resident(agent.process.pid) - before < 10 * MEGABYTE)


def resident(pid: int) -> int:
    """Bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))
