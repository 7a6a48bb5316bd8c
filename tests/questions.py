"""Questions for reviewers, for tests."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, Origin, OriginReason
from ironcurtain_proxy.model.grant import GrantPattern, WithinDirectory
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Json, RealPath
from tests.fakes import FakeClock

ETC = GrantPattern(
    server="files",
    tool="read_file",
    definition="d1",
    constraints=(WithinDirectory("read-path", RealPath.from_text("/etc")),),
    description="Allow files/read_file read-path within /etc",
)


_ORIGINS: tuple[Origin, ...] = ("policy", "policy", "capability", "tool-policy", "target")
FIVE_REASONS = tuple(
    [
        OriginReason(origin=origin, ground=Ground(f"rule-{number}", f"reason {number} to ask"))
        for number, origin in enumerate(_ORIGINS)
    ]
)
"""Why one call is asked about; the last is the worst."""

SRV = replace(ETC, description="Allow files/read_file read-path within /srv")


def a_question(
    arguments: Mapping[str, Json] | None = None,
    *,
    seconds: float = 60,
    grantable: bool = True,
    kinds: int = 1,
    identifier: str = "7db5443e-0000-4000-8000-000000000000",
) -> Escalation:
    """A file outside the workspace is to be read. It may be answered for so many seconds."""
    return Escalation(
        id=EscalationId(identifier),
        session="s",
        server="files",
        tool="read_file",
        exposed_name="files__read_file",
        arguments={"path": "/etc/hosts"} if arguments is None else arguments,
        request=AccessRequest(
            server="filesystem", tool="read_file", annotated=True, has_arguments=True, arguments=()
        ),
        ground=Ground("outside", "it lies outside the workspace"),
        roles=("read-path",),
        alone=(),
        context=(("Working directory", "/srv/repo"),),
        candidates=(ETC, SRV)[:kinds] if grantable else (),
        fingerprint="f" * 64,
        policy_version="v",
        created=FakeClock().now(),
        deadline=FakeClock().now() + timedelta(seconds=seconds),
    )
