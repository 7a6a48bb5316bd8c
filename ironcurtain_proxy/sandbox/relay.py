"""The program that lets a server in a sandbox reach named services on its own loopback.

    python -I -S relay.py HOST:PORT ... -- COMMAND [ARGUMENT ...]

A confined server has a network of its own, which ends at the sandbox's proxy for HTTP. A driver of
a database knows no such proxy: it connects to `localhost:5432`, where nothing listens. This program
listens there, on the PORT of each service, and becomes COMMAND. A child process carries what
connects: it asks the proxy for a tunnel (`CONNECT`) to HOST:PORT. The proxy decides, as for every
host, and lets through the address and port of the server's entry alone.

This is a program of its own, which runs once for each server. It imports nothing of this package.
"""

import base64
import os
import socket
import sys
import threading
import time
import urllib.parse

_MOST_HEAD = 8192
_PIECE = 65536
_WAITING = 128
_PAUSE = 0.05
_CANNOT_RUN, _NOT_FOUND = 126, 127


def main(arguments: list[str]) -> int:
    """Listen, leave the carrying to a child, and become the command; comes back if that fails."""
    end = arguments.index("--")
    command = arguments[end + 1 :]
    try:
        # Before the server starts, so that none of its connections is refused.
        listeners = {service: _listener(service) for service in arguments[:end]}
    except OSError as error:
        sys.stderr.write(f"{' '.join(arguments[:end])}: cannot be relayed: {error.strerror}\n")
        return _CANNOT_RUN
    if os.fork() == 0:
        _carry(listeners)
    for listener in listeners.values():
        listener.close()
    # Python sets LC_CTYPE where there is no locale (PEP 538): the server gets what was given.
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  pathlib is slow to load
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    try:
        os.execvpe(command[0], command, {name: value for name, _, value in pairs})  # noqa: S606  this is what it is for
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return _NOT_FOUND


def _listener(service: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(service.rpartition(":")[2])))
    listener.listen(_WAITING)
    return listener


def _carry(listeners: dict[str, socket.socket]) -> None:
    """Carry connections until the sandbox ends; never comes back."""
    try:
        # The proxy waits for the end of the server's streams, which this process must not hold.
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        threads = [threading.Thread(target=_accept, args=pair) for pair in listeners.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os._exit(0)


def _accept(service: str, listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            # No descriptor is free. What waits is accepted when a connection has ended.
            time.sleep(_PAUSE)
            continue
        try:
            threading.Thread(target=_serve, args=(client, service), daemon=True).start()
        except RuntimeError:
            # The sandbox has no thread left: the server sees a closed connection.
            client.close()


def _serve(client: socket.socket, service: str) -> None:
    with client:
        try:
            with _tunnel(service) as upstream:
                back = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
                back.start()
                _copy(client, upstream)
                back.join()
        except (OSError, RuntimeError):
            return


def _tunnel(service: str) -> socket.socket:
    """Return a connection to a service through the proxy of the sandbox.

    Raises:
        OSError: there is no proxy, or it refuses the service.
    """
    proxy = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY", ""))
    words = urllib.parse.unquote(f"{proxy.username or ''}:{proxy.password or ''}")
    said = base64.b64encode(words.encode()).decode()
    upstream = socket.create_connection((proxy.hostname or "localhost", proxy.port or 0))
    request = f"CONNECT {service} HTTP/1.1\r\nHost: {service}\r\nProxy-Authorization: Basic {said}"
    upstream.sendall(f"{request}\r\n\r\n".encode())
    head = b""
    # A byte at a time: what follows the head belongs to the service.
    while not head.endswith(b"\r\n\r\n") and len(head) < _MOST_HEAD and (one := upstream.recv(1)):
        head += one
    if head.split(b" ")[1:2] != [b"200"] or not head.endswith(b"\r\n\r\n"):
        upstream.close()
        raise ConnectionRefusedError
    return upstream


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side is gone: the other hears of it, and both threads end.
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
