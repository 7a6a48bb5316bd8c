"""A mailbox over a real directory, and questions for it."""

import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import orjson

from ironcurtain_proxy.mailbox.messages import Credential
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, Ruling
from ironcurtain_proxy.model.grant import GrantPattern, WithinDirectory
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.ports import AnswerJudge
from tests.program import PATIENCE, until


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  the files' times are real

    def steady(self) -> datetime:
        return self.now()

    def monotonic(self) -> float:
        return time.monotonic()


CLOCK = RealClock()
APPROVED = b'{"decision":"approved"}'


def an_id() -> str:
    return str(uuid.UUID(bytes=os.urandom(16), version=4))


def within(directory: str) -> GrantPattern:
    return GrantPattern(
        server="files",
        tool="read_file",
        definition="0",
        constraints=(WithinDirectory("read-path", RealPath.from_text(directory)),),
        description=f"Allow files/read_file read-path within {directory}",
    )


def escalation(
    *,
    arguments: Arguments | None = None,
    seconds: float = PATIENCE,
    identity: str = "",
    candidates: tuple[GrantPattern, ...] = (),
    tool: str = "read_file",
) -> Escalation:
    now = CLOCK.now()
    path = PathValue("/etc/hosts", RealPath.from_text("/etc/hosts"))
    return Escalation(
        id=EscalationId(identity or an_id()),
        session="session-1",
        server="files",
        tool=tool,
        exposed_name=f"files__{tool}",
        arguments={"path": "/etc/hosts"} if arguments is None else arguments,
        request=AccessRequest(
            server="files",
            tool=tool,
            annotated=True,
            has_arguments=True,
            arguments=(ArgumentFact("path", ("read-path",), (path,)),),
        ),
        ground=Ground("outside-workspace", "Reads outside the workspace"),
        roles=("read-path",),
        alone=(),
        candidates=candidates,
        fingerprint="f" * 64,
        policy_version="p1",
        created=now,
        deadline=now + timedelta(seconds=seconds),
    )


@dataclass
class Box:
    """A running mailbox, seen from both sides."""

    path: Path
    mailbox: Mailbox
    rulings: dict[str, Ruling] = field(default_factory=dict)

    async def ask(self, question: Escalation) -> None:
        self.rulings[question.id] = await self.mailbox.ask(question)

    def request(self, question: Escalation) -> Path:
        return self.path / f"request-{question.id}.json"

    def response(self, question: Escalation) -> Path:
        return self.path / f"response-{question.id}.json"

    def fields(self, question: Escalation) -> dict[str, Json]:
        fields = orjson.loads(self.request(question).read_bytes())
        assert isinstance(fields, dict)
        return fields

    def answer(self, question: Escalation, raw: bytes | Mapping[str, Json]) -> None:
        """As another program would: a temporary name, then a rename."""
        content = raw if isinstance(raw, bytes) else orjson.dumps(dict(raw))
        temporary = self.path / f"{question.id}.partial"
        temporary.write_bytes(content)
        temporary.rename(self.response(question))

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir())

    @asynccontextmanager
    async def asked(self, question: Escalation) -> AsyncIterator[None]:
        """While the question is open; leaving waits for its ruling."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.ask, question)
            # A short one may have ended before this looks.
            await until(lambda: self.request(question).exists() or question.id in self.rulings)
            yield

    async def ruling(self, question: Escalation, raw: bytes | Mapping[str, Json]) -> Ruling:
        """What an answer leads to."""
        async with self.asked(question):
            self.answer(question, raw)
        return self.rulings[question.id]


@asynccontextmanager
async def a_box(
    path: Path,
    *,
    require_digest: bool = False,
    assume_listener: bool = True,
    credential: Credential | None = None,
    signed: AnswerJudge | None = None,
) -> AsyncIterator[Box]:
    settings = MailboxSettings(
        directory=path,
        assume_listener=assume_listener,
        sessions_dir=path.parent,
        require_digest=require_digest,
        credential=credential,
        signed=signed,
    )
    mailbox = Mailbox(settings, CLOCK)
    async with anyio.create_task_group() as tasks:
        await tasks.start(mailbox.run)
        yield Box(path, mailbox)
        tasks.cancel_scope.cancel()
