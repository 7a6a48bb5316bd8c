"""The renewal of a login by a process of its own, which outlives a proxy that is killed.

Many authorization servers spend a refresh token with their answer. Clients kill a proxy a moment
after they have closed its input: if that is between the answer and the file, nobody has the new
token, and a person must log in again.

    proxy ── the login, on standard input ──▶ this process, in a session of its own
                                              asks, and writes the file
    proxy ◀── what came of it ──────────────

Both have the lock of the login, as one descriptor: another proxy waits until the last of them ends,
and reads what was written.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Final, cast

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream
from msgspec import Struct

from ironcurtain_proxy import children
from ironcurtain_proxy.downstream.remote.logins import Login, LoginFile
from ironcurtain_proxy.downstream.remote.network import GuardedTransport, open_client
from ironcurtain_proxy.downstream.remote.token_requests import (
    DEADLINE,
    TokenRefusedError,
    request_token,
)
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import RemoteEndpoint

_PATIENCE: Final = DEADLINE + 10.0
_ROOT: Final = str(Path(__file__).parents[3])
_PROGRAM: Final = f"import sys; sys.path.append(sys.argv[1]); import {__name__} as it; it.main()"


class Renewal(Struct, frozen=True, kw_only=True):
    """What is to be renewed."""

    server: str
    addresses: tuple[str, ...]
    proxy: str | None
    directory: str
    """The directory of all logins."""
    login: Login
    form: dict[str, str]

    async def obtained(self) -> Login:
        """Ask the authorization server; raises as `request_token`."""
        networks = tuple([ip_network(one) for one in self.addresses])
        endpoint = RemoteEndpoint(url=self.login.url, addresses=networks, proxy=self.proxy)
        async with open_client(GuardedTransport(self.server, endpoint)) as client:
            return await request_token(client, self.login, self.form)


class Renewed(Struct, frozen=True, kw_only=True):
    """What came of it."""

    login: Login | None = None
    fault: str | None = None
    """Why there was no answer; None without a login: it was refused."""


_read_outcome: Final = msgspec.json.Decoder(Renewed).decode


async def renewed_apart(
    server: str, endpoint: RemoteEndpoint, file: LoginFile, login: Login, form: Mapping[str, str]
) -> Login:
    """Return a login with a new token, which is in its file by then, if it could be written.

    Args:
        server: the name of the server.
        endpoint: the server's endpoint.
        file: the file of the login, whose lock this process holds.
        login: what is renewed.
        form: what the authorization server is asked for.

    Raises:
        TokenRefusedError: there is none.
        ServerUnavailableError: the authorization server cannot be asked.
    """
    order = Renewal(
        server=server,
        addresses=tuple(map(str, endpoint.addresses)),
        proxy=endpoint.proxy,
        directory=str(file.path.parent),
        login=login,
        form=dict(form),
    )
    outcome = Renewed(fault="the process that renews its login was ended")
    with suppress(msgspec.MsgspecError, TimeoutError, OSError):
        outcome = _read_outcome(await _run(msgspec.json.encode(order), file.lock))
    if outcome.login is not None:
        return outcome.login
    if outcome.fault is None:
        raise TokenRefusedError
    raise ServerUnavailableError(outcome.fault)


async def _run(order: bytes, lock: int) -> bytes:
    with children.in_own_session() as started:
        process = await anyio.open_process(
            [sys.executable, "-I", "-c", _PROGRAM, _ROOT],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock,),
        )
        started(process.pid)
    entrance = cast("ByteSendStream", process.stdin)
    exit_ = cast("ByteReceiveStream", process.stdout)
    try:
        with anyio.fail_after(_PATIENCE):
            await entrance.send(order)
            await entrance.aclose()
            said = b"".join([part async for part in exit_])
            await process.wait()
            return said
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()
        children.forget(process.pid)


def main() -> None:
    """Renew the login that stands on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Renewal)
    try:
        found = anyio.run(order.obtained)
    except TokenRefusedError:
        outcome = Renewed()
    except ServerUnavailableError as error:
        outcome = Renewed(fault=str(error))
    else:
        with suppress(ServerUnavailableError):  # the proxy finds the reason, too
            LoginFile(Path(order.directory), order.server, found.url).write(found)
        outcome = Renewed(login=found)
    with suppress(OSError):  # the proxy was killed
        os.write(1, msgspec.json.encode(outcome))
