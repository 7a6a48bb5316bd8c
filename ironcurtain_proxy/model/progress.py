"""Notifications that a call is still under way. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping

from ironcurtain_proxy.model.json import Json


def sign_of_life(token: Json, seconds: float) -> Mapping[str, Json]:
    """The `params` of a progress notification of a call that waits for its approval.

    Progress must grow, and the server's own begins at 0 or 1: ours stays close to nothing.
    """
    return {
        "progressToken": token,
        "progress": seconds / 1e9,
        "message": f"waiting for approval ({seconds:.0f} s)",
    }
