"""Those who are told: a notifier at work, a web hook and a terminal that take what it says."""

import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio

from ironcurtain_proxy.auto_confirm.notice_channels import CommandChannel, NoticeChannel
from ironcurtain_proxy.auto_confirm.notifier import NoticeSender, Notifier, Summaries
from tests.program import PATIENCE, until

HANGING = CommandChannel(argv=("sh", "-c", "sleep 600"))

WRITE_ARGUMENTS = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:]))"


@asynccontextmanager
async def notifying(
    *channels: NoticeChannel, deadline: float = 5.0, summaries: Summaries | None = None
) -> AsyncIterator[Notifier]:
    notifier = Notifier(
        channels=channels,
        transport=NoticeSender(os.environ),
        summaries=summaries,
        deadline=deadline,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(notifier.run)
        yield notifier
        tasks.cancel_scope.cancel()


async def told(notifier: Notifier, notifications: int = 1) -> None:
    await until(lambda: notifier.delivered + notifier.failed >= notifications)


@dataclass
class Hook:
    """A server that takes notices."""

    url: str = ""
    got: list[bytes] = field(default_factory=list)
    status: int = 200
    location: str = ""
    hangs: bool = False
    released: threading.Event = field(default_factory=threading.Event)


@contextmanager
def a_hook(hook: Hook) -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            hook.got.append(self.rfile.read(int(self.headers["content-length"])))
            if hook.hangs:
                hook.released.wait(PATIENCE)
                return
            self.send_response(hook.status)
            if hook.location:
                self.send_header("location", hook.location)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/secret-path"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hook
    finally:
        hook.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def a_terminal(tmp_path: Path) -> Iterator[tuple[Path, Callable[..., str]]]:
    """A tmux server with one session, in which `cat` writes what is typed to a file."""
    socket = tmp_path / "tmux.sock"

    def tmux(*words: str) -> str:
        command = ["tmux", "-S", str(socket), "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    typing = f"exec > {tmp_path}/typed; tmux wait-for -S typing; exec cat"
    tmux("new-session", "-d", "-s", "reviewers", typing)
    tmux("wait-for", "typing")  # before that, the file may be missing
    ours, theirs = os.openpty()
    attach = ["tmux", "-S", str(socket), "attach", "-t", "reviewers"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        attach, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ):
        try:
            yield socket, tmux
        finally:
            tmux("kill-server")
            os.close(theirs)
            os.close(ours)
