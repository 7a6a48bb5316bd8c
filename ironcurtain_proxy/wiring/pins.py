"""The pins of a session, joined to its servers and its catalogue."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.agent.asking import Introduction, introduction_of, shown_title, tool_usage
from ironcurtain_proxy.config.policy.managed import Bundle
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.eras import ServerDescription
from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue, pin_digest
from ironcurtain_proxy.model.server import Section
from ironcurtain_proxy.pins.book import PINS_NAME, PinBook, PinnedServer, PinStore

LISTED_ANEW: Final[Mapping[str, tuple[Section, ...]]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("templates",),
}
"""The lists that are fetched again, before use, after a server's notification."""

_EVERY: Final = 0.5
"""Seconds between two looks for changes that a person has accepted."""

_MOST_MISSING: Final = 10
"""The most servers of which the agent reads why they did not start."""


def pin_store(state_dir: Path) -> PinStore:
    """Return the files of pins in a state directory."""
    return PinStore(state_dir / PINS_NAME)


def pinned_servers(settings: Settings) -> Mapping[str, PinnedServer]:
    """Return the pin settings of each configured server, by its name."""
    workspace = None if settings.workspace is None else str(settings.workspace)
    return {
        spec.name: PinnedServer(
            spec.name, pin_digest(spec, workspace), spec.pins or settings.pins, workspace
        )
        for spec in settings.servers
    }


def pins_of(settings: Settings, bundle: Bundle | None = None) -> PinBook:
    """Return the pins of a session, those of the fleet above the user's. Nothing is read yet."""
    fleet = None if bundle is None else bundle.directory / PINS_NAME
    store = PinStore(settings.state_dir / PINS_NAME, fleet)
    return PinBook(store=store, servers=pinned_servers(settings))


def pinned_introductions(
    servers: Mapping[str, ServerDescription], pins: PinBook, missing: list[str], *, are_all: bool
) -> Introduction:
    """Return the instructions for the agent: the proxy's own, and the accepted ones of servers.

    Args:
        servers: the started servers, by name.
        pins: what was accepted.
        missing: why others did not start.
        are_all: whether there are no others.
    """
    passed: dict[str, ServerDescription] = {}
    notes = [f"{one} Tell the user." for one in missing[:_MOST_MISSING]]
    for name, said in servers.items():
        info = said.info if pins.title(name, shown_title(said)) else {}
        instructions = said.instructions
        if not pins.instructions(name, instructions):
            instructions = ""
            notes.append(
                f"The instructions of the server {name} changed and are left out until the "
                "operator has accepted them. Tell the user."
            )
        passed[name] = ServerDescription(said.capabilities, instructions, info)
    return introduction_of("\n\n".join([tool_usage(), *notes]), passed, are_all=are_all)


async def follow_acceptance(
    pins: PinBook, catalogue: LiveCatalogue, changed: Callable[[], Awaitable[None]]
) -> None:
    """Apply the changes that a person accepts meanwhile, until cancelled."""
    while True:
        await anyio.sleep(_EVERY)
        servers = pins.changed_servers()
        for server in servers:
            pins.forget(server)
            catalogue.look_at_pins_again(server)
        if servers:
            await changed()
