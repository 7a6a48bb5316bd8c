"""Servers over HTTP that want a login before they list their tools. Not a command itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.init_servers import read_servers
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import IronCurtainError

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.read_tool import ReadServer


def wanting_login(settings: Settings, servers: "Sequence[ReadServer]") -> list[str]:
    """The names of the servers that did not answer because nobody has logged in to them."""
    browsing = {
        spec.name
        for spec in settings.servers
        if spec.remote is not None
        and not spec.remote.has_authorization
        and (spec.remote.oauth is None or spec.remote.oauth.grant == "browser")
    }
    return [one.name for one in servers if one.name in browsing and _is_login(one.error)]


def with_logins(
    talk: Dialogue, settings: Settings, servers: "Sequence[ReadServer]", seconds: float
) -> "list[ReadServer]":
    """The servers. Those to which the person has now logged in are read again.

    With `--yes` nobody sits before a browser: the logins are left for later.
    """
    done: list[str] = []
    for name in [] if talk.yes else wanting_login(settings, servers):
        if talk.ask(f"{clean(name)} wants a login: open its page in your browser now?") == "y":
            done += [name] if _logged_in(talk, settings, name) else []
    if not done:
        return [*servers]
    again = tuple([spec for spec in settings.servers if spec.name in done])
    read = {one.name: one for one in read_servers(replace(settings, servers=again), seconds)}
    return [read.get(one.name, one) for one in servers]


def _logged_in(talk: Dialogue, settings: Settings, name: str) -> bool:
    # Joins the SDK: half a second to import, and an extra's.
    from ironcurtain_proxy.cli.login import logged_in  # noqa: PLC0415
    from ironcurtain_proxy.cli.remote_server import server_of  # noqa: PLC0415

    try:
        logged_in(server_of(settings, name), opens_browser=True)
    except IronCurtainError as error:
        talk.say(f"{clean(name)}: {clean(str(error), 300)}")
        return False
    return True


def _is_login(error: str) -> bool:
    return "login" in error or "401" in error
