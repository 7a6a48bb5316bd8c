"""Others are told: by a command, over HTTP, in a file, in tmux. Nobody waits for it."""

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import orjson
import pytest
from anyio.abc import Process
from hypothesis import example, given
from hypothesis import strategies as st

from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.auto_confirm.notifier import NoticeSender, Notifier, review_notice
from tests.auto_confirm.listeners import (
    HANGING,
    WRITE_ARGUMENTS,
    Hook,
    a_hook,
    a_terminal,
    notifying,
    told,
)
from tests.program import until
from tests.tables import table

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NOTE = review_notice(
    interaction_id="7db5443e-0000-4000-8000-000000000000",
    operation="delete",
    target="architect_manager",
    priority=9,
)
PAYLOAD = {
    "type": "permission_escalation",
    "interaction_id": "7db5443e-0000-4000-8000-000000000000",
    "operation": "delete",
    "target": "architect_manager",
    "priority": 9,
}


@pytest.mark.anyio
@pytest.mark.requirement("B-57", "B-103")
async def test_a_command_gets_id_and_operation_as_its_last_arguments(tmp_path: Path) -> None:
    file = tmp_path / "got"
    argv = (sys.executable, "-c", WRITE_ARGUMENTS, str(file))
    async with notifying(CommandChannel(argv=argv)) as notifier:
        notifier.notify(NOTE)
        await told(notifier)
    assert file.read_text() == "['7db5443e-0000-4000-8000-000000000000', 'delete']"


@pytest.mark.anyio
async def test_a_command_gets_nothing_of_the_proxys_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-proxy")
    file = tmp_path / "got"
    code = "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(' '.join(os.environ))"
    channel = CommandChannel(argv=(sys.executable, "-c", code, str(file)))
    async with notifying(channel) as notifier:
        notifier.notify(NOTE)
        await told(notifier)
    names = set(file.read_text().split())
    assert "PATH" in names
    assert "ANTHROPIC_API_KEY" not in names


@pytest.mark.anyio
@pytest.mark.requirement("B-103")
async def test_a_webhook_gets_the_payload() -> None:
    with a_hook(Hook()) as hook:
        async with notifying(WebhookChannel(url=hook.url)) as notifier:
            notifier.notify(NOTE)
            await told(notifier)
    assert [orjson.loads(body) for body in hook.got] == [PAYLOAD]


@pytest.mark.anyio
async def test_a_file_gets_a_line_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "notices.jsonl"
    path.write_text("")
    path.chmod(0o644)
    async with notifying(FileChannel(path=path)) as notifier:
        notifier.notify(NOTE)
        notifier.notify(
            review_notice(interaction_id="i", operation="deploy", target="human", priority=9)
        )
        await told(notifier, 2)
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert sorted(line["operation"] for line in lines) == ["delete", "deploy"]
    assert PAYLOAD in lines
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.anyio
@pytest.mark.requirement("B-57", "X-18")
async def test_tmux_shows_a_notice_types_nothing_and_runs_nothing(tmp_path: Path) -> None:
    attack = f"#(touch {tmp_path}/pwned)#[fg=red]%H\n\x1b[2Jrm -rf /;$(id)`id`"
    with a_terminal(tmp_path) as (socket, tmux):
        await until(lambda: tmux("list-clients") != "")
        channel = TmuxChannel(target="reviewers", socket=socket)
        async with notifying(channel) as notifier:
            notifier.notify(NOTE)
            notifier.notify(
                review_notice(
                    interaction_id="7db5443e", operation=attack, target=attack, priority=9
                )
            )
            await told(notifier, 2)
        assert (notifier.delivered, notifier.failed) == (2, 0)
        messages = tmux("show-messages")
    shown = "Permission review required: delete (7db5443e-0000-4000-8000-000000000000)"
    assert f"message: {shown}, for architect_manager, priority 9" in messages
    assert messages.count("message: ") == 2
    assert not (tmp_path / "pwned").exists()
    assert (tmp_path / "typed").read_text() == ""


@example("-x", "--help", "-", 9)
@given(st.text(), st.text(), st.text(), st.integers())
@pytest.mark.requirement("X-18")
def test_a_notice_is_one_harmless_short_line(
    interaction_id: str, operation: str, target: str, priority: int
) -> None:
    notice = review_notice(
        interaction_id=interaction_id, operation=operation, target=target, priority=priority
    )
    words = [str(notice.fields[key]) for key in ("interaction_id", "operation", "target")]
    for word in words:
        assert word.isascii()
        assert word.isprintable()
        assert 0 < len(word) <= 100
        assert not set(word) & set(" #$%`'\"\\;|&<>(){}[]*!~\n")
        assert not word.startswith("-")


# --- nobody waits --------------------------------------------------------------------------------


def _broken(tmp_path: Path) -> dict[str, NoticeChannel]:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    return {
        "no such program": CommandChannel(argv=("/nonexistent/program",)),
        "a program that fails": CommandChannel(argv=("false",)),
        "a program that hangs": HANGING,
        "nobody listens": WebhookChannel(url="http://127.0.0.1:9/secret-path"),
        "no such directory": FileChannel(path=tmp_path / "none" / "file"),
        "a link": FileChannel(path=tmp_path / "link"),
        "a pipe nobody reads": FileChannel(path=tmp_path / "pipe"),
        "a directory": FileChannel(path=tmp_path),
        "no tmux there": TmuxChannel(target="nobody", socket=tmp_path / "none.sock"),
    }


BROKEN = table("auto_confirm/notifier.broken", tuple[str, ...])


@pytest.mark.anyio
@pytest.mark.requirement("X-18")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_channel_that_fails_is_a_debug_line_and_the_next_one_is_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = _broken(tmp_path)[name]
    working = FileChannel(path=tmp_path / "notices")
    with caplog.at_level(logging.DEBUG, "ironcurtain_proxy"):
        async with notifying(broken, working, deadline=0.5) as notifier:
            notifier.notify(NOTE)
            await told(notifier, 2)
    assert (notifier.failed, notifier.delivered) == (1, 1)
    assert working.path.exists()
    assert not (tmp_path / "elsewhere").exists()
    [line] = [r for r in caplog.records if "notification failed" in r.getMessage()]
    assert line.levelno == logging.DEBUG
    assert "secret-path" not in caplog.text


@pytest.mark.anyio
@pytest.mark.requirement("X-18")
@pytest.mark.parametrize(
    "hook", [Hook(status=500), Hook(status=302, location="http://127.0.0.1:9/"), Hook(hangs=True)]
)
async def test_a_webhook_that_fails_is_asked_once(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    with a_hook(hook), caplog.at_level(logging.DEBUG):
        # Time enough for the request on a busy machine; only one hook uses it up.
        async with notifying(WebhookChannel(url=hook.url), deadline=3.0) as notifier:
            notifier.notify(NOTE)
            await told(notifier)
        assert (notifier.failed, len(hook.got)) == (1, 1)
    assert "secret-path" not in caplog.text


_STARTS_ANOTHER = "sleep 600 & echo $! > {kept}.new; mv {kept}.new {kept}; wait"


@pytest.mark.anyio
async def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    kept = tmp_path / "pid"
    channel = CommandChannel(argv=("sh", "-c", _STARTS_ANOTHER.format(kept=kept)))
    async with notifying(channel, deadline=1.0) as notifier:
        notifier.notify(NOTE)
        await told(notifier)
    await until(lambda: not _lives(kept))


@pytest.mark.anyio
async def test_a_command_that_is_cancelled_at_its_start_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "pid"
    start: Callable[..., Awaitable[Process]] = anyio.open_process

    async def cut_off(*args: object, **options: object) -> Process:
        process = await start(*args, **options)
        await until(kept.exists)
        scope.cancel()
        await anyio.lowlevel.checkpoint()  # the start would end later
        return process

    monkeypatch.setattr(anyio, "open_process", cut_off)
    channel = CommandChannel(argv=("sh", "-c", _STARTS_ANOTHER.format(kept=kept)))
    with anyio.CancelScope() as scope:
        await NoticeSender(os.environ).carry(channel, NOTE)
    await until(lambda: not _lives(kept))


def _lives(kept: Path) -> bool:
    """Return whether the process lives; what is dead, somebody above collects in their own time."""
    stat = Path(f"/proc/{int(kept.read_text())}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.anyio
@pytest.mark.requirement("X-18")
async def test_what_does_not_fit_is_dropped_and_counted_and_nobody_waits() -> None:
    notifier = Notifier(channels=(HANGING,), transport=NoticeSender(os.environ), at_most=10)
    async with anyio.create_task_group() as tasks:
        await tasks.start(notifier.run)
        for _ in range(1_000):
            notifier.notify(NOTE)
        assert notifier.dropped == 990
        tasks.cancel_scope.cancel()
    notifier.notify(NOTE)
    assert notifier.dropped == 991


def test_without_a_channel_nothing_is_dropped_either() -> None:
    notifier = Notifier(channels=(), transport=NoticeSender(os.environ))
    notifier.notify(NOTE)
    assert notifier.dropped == 0
