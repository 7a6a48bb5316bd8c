"""Progress notifications of a call that waits."""

from collections.abc import Awaitable, Callable, Mapping

from ironcurtain_proxy.model.json import Json


def sign_of_life(token: Json, seconds: float) -> Mapping[str, Json]:
    """The `params` of a progress notification of a call that waits for its approval.

    Progress values must grow, and those of the server begin at 0 or 1, so that these stay close
    to zero.
    """
    return {
        "progressToken": token,
        "progress": seconds / 1e9,
        "message": f"waiting for approval ({seconds:.0f} s)",
    }


def pulse(
    params: Mapping[str, Json], tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None
) -> Callable[[float], Awaitable[None]] | None:
    """A function that reports a call's waiting seconds to the client; None: it asked for none.

    Args:
        params: the call's, with the client's token in `_meta`.
        tell: sends a progress notification.
    """
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if tell is None or token is None:
        return None
    return lambda seconds: tell(sign_of_life(token, seconds))
