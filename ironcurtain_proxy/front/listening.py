"""Sockets that this machine alone reaches, and the file that names the port."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.front.settings import PORT, PORT_FILE, SOCKET, FrontSettings
from ironcurtain_proxy.private_files import write_whole

LOOPBACK: Final = "127.0.0.1"
_QUEUE: Final = 128
_OURS_ALONE: Final = 0o177
_PROBE: Final = 1.0


@contextmanager
def listening(settings: FrontSettings) -> Iterator[list[socket.socket]]:
    """Listen where the settings say, and leave nothing behind afterwards.

    Raises:
        ConfigurationError: another program has the port or the path.
    """
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        if settings.socket is not None:
            sockets.append(opened.enter_context(_unix(settings.socket)))
        if settings.port is not None:
            tcp = opened.enter_context(_tcp(settings.port))
            sockets.append(tcp)
            if settings.port_file is not None:
                opened.enter_context(_named(settings.port_file, port_of(tcp)))
        yield sockets


def port_of(found: socket.socket) -> int:
    """The port of a TCP socket."""
    return int(found.getsockname()[1])


@contextmanager
def _tcp(port: int) -> Iterator[socket.socket]:
    # asyncio turns the waiting for further bytes (Nagle) off only where the protocol is named: else
    # the two halves of an answer are 40 ms apart.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(f"{PORT} {port}: {error.strerror}") from None
        found.listen(_QUEUE)
        yield found


@contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    _remove_left_over(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        before = os.umask(_OURS_ALONE)
        try:
            found.bind(str(path))
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigurationError(f"{SOCKET} {path}: {why}") from None
        finally:
            os.umask(before)
        own = path.lstat()  # the inode is kept from another use as long as this socket is open
        found.listen(_QUEUE)
        try:
            yield found
        finally:
            _remove_own(path, own)


def _remove_own(path: Path, own: os.stat_result) -> None:
    with suppress(OSError):
        if os.path.samestat(path.lstat(), own):
            path.unlink()


def _remove_left_over(path: Path) -> None:
    """Remove the socket of a killed front. Any other file is kept.

    Raises:
        ConfigurationError: something answers there.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with suppress(OSError):
                path.unlink()
            return
        except OSError:
            return  # binding it says what is wrong
    raise ConfigurationError(f"{SOCKET} {path}: another program listens there")


@contextmanager
def _named(path: Path, port: int) -> Iterator[None]:
    text = f"{port}\n".encode()
    try:
        write_whole(path, text)
    except OSError as error:
        raise ConfigurationError(f"{PORT_FILE} {path}: {error.strerror}") from None
    try:
        yield
    finally:
        # The front that takes this one's place may have written the file meanwhile. The port tells
        # the two apart, because both listen. The inode does not: file systems use it again at once.
        with suppress(OSError):
            if path.read_bytes() == text:
                path.unlink()
