"""The relay of services outlives a server that takes every descriptor."""

import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

from ironcurtain_proxy.sandbox import relay
from tests.program import PATIENCE

DESCRIPTORS = 24
"""For about eight connections: each takes two."""


def tunnel(listener: socket.socket) -> None:
    """Answer each `CONNECT`, and send back what comes."""

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (piece := client.recv(1)):
                    return
                head += piece
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while piece := client.recv(1024):
                client.sendall(piece)

    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client,), daemon=True).start()


def few() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def test_a_service_is_reached_again_once_descriptors_are_free() -> None:
    with ExitStack() as opened:
        proxy = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        threading.Thread(target=tunnel, args=(proxy,), daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-I", "-S", relay.__file__, f"127.0.0.1:{port}", "--", "cat"]
        address = f"http://u:p@127.0.0.1:{proxy.getsockname()[1]}"
        server = opened.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"HTTPS_PROXY": address, "PATH": os.environ["PATH"]},
                preexec_fn=few,  # noqa: PLW1509  no other thread holds a lock
                start_new_session=True,
            )
        )
        assert server.stdin is not None
        assert server.stdout is not None
        opened.callback(os.killpg, server.pid, 9)
        server.stdin.write(b"up\n")
        server.stdin.flush()
        # It listens before it becomes the command.
        assert server.stdout.readline() == b"up\n"
        with ExitStack() as many:
            for _ in range(40):
                one = many.enter_context(socket.create_connection(("127.0.0.1", port)))
                with suppress(OSError):
                    one.sendall(b"x")
        # The first tries may meet connections that are not closed yet.
        assert any(is_served(port) for _ in range(200))


def is_served(port: int) -> bool:
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as again,
    ):
        again.sendall(b"again")
        return again.recv(5) == b"again"
    return False
