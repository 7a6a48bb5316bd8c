"""The one place where rooms are joined."""

from ironcurtain_proxy.wiring.live import list_live_tools
from ironcurtain_proxy.wiring.serving import serve

__all__ = ["list_live_tools", "serve"]
