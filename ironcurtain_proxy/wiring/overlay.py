"""The overlay, joined from the settings and the sandboxes."""

from collections.abc import Callable, Collection

from ironcurtain_proxy.approval.capabilities import detect_isolation, effective_profile
from ironcurtain_proxy.approval.judging import Overlay
from ironcurtain_proxy.approval.overlay import OverlayRules, is_gate_on
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.capability import Isolation


def overlay_for(settings: Settings, confined: Collection[str]) -> Overlay:
    """Profile and approval mode, and what the operator declared of tools.

    Where neither of the two asks anything, they are off. The declarations count all the same: they
    say which argument holds a shell command, which reviewers and the engine need to know.

    Args:
        settings: what the operator said.
        confined: the servers that run in a sandbox.
    """
    said = settings.overlay
    if said.capabilities.profile is None and not is_gate_on(said.interceptor):
        rules = None
    else:
        rules = OverlayRules(
            interceptor=said.interceptor,
            profile=said.capabilities.profile,
            isolation=isolation_of(settings, confined),
        )
    return Overlay(
        rules=rules,
        declarations=said.capabilities.declarations,
        by_argument=said.capabilities.by_argument,
        ask_when_named_by=frozenset(settings.targets.ask_when_named_by),
    )


def isolation_of(settings: Settings, confined: Collection[str]) -> Isolation:
    """The isolation of the session: the declared one, else by whether every server is confined.

    A server that has a sandbox is never started without it.
    """
    said = settings.overlay.capabilities
    every = bool(settings.servers) and all(spec.name in confined for spec in settings.servers)
    return detect_isolation(
        said.isolation_flag, said.isolation_manifest, every_server_confined=every
    )


def say_what_holds(overlay: Overlay, say: Callable[[str], None]) -> None:
    """Tell the operator once if another profile than the chosen one is used."""
    rules = overlay.rules
    if rules is not None and rules.profile is not None:
        _, sentence = effective_profile(rules.profile, rules.isolation)
        if sentence is not None:
            say(f"warning: {sentence}")


def command_argument(
    overlay: Overlay, names: Callable[[str, str], frozenset[str]]
) -> Callable[[str, str], str | None]:
    """Finds the argument of a tool that holds a shell command, as the operator declared it.

    Args:
        overlay: what the operator declared.
        names: what a tool may be called.
    """

    def find(server: str, tool: str) -> str | None:
        if not overlay.declarations:
            return None
        found = overlay.declared(names(server, tool))
        return None if found is None else found.command_argument

    return find
