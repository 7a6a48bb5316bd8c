"""Notifications that a call is still under way."""

from collections.abc import Awaitable, Callable, Mapping

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


def pulse(
    params: Mapping[str, Json], tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None
) -> Callable[[float], Awaitable[None]] | None:
    """What tells the client of a waiting call how many seconds it has waited; None: it did not ask.

    Args:
        params: the call's, with the client's token in `_meta`.
        tell: sends a progress notification.
    """
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if tell is None or token is None:
        return None
    return lambda seconds: tell(sign_of_life(token, seconds))
