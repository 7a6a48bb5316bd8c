# ruff: noqa: ASYNC240  the files are local and small
"""Attacks on the mailbox: the answer is no, nothing is left behind, and the proxy goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.inotify import InotifyQueue
from ironcurtain_proxy.mailbox.adoption import adopted
from ironcurtain_proxy.mailbox.mailboxes import this_process
from ironcurtain_proxy.mailbox.messages import (
    Owner,
    digest_of,
    request_bytes,
    request_name,
    settled_name,
)
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.model.decision import KERNEL
from ironcurtain_proxy.model.escalation import Approved, Declined, Unreachable
from ironcurtain_proxy.private_directory import MailboxDirectory
from tests.mailbox.mailbox_fixture import APPROVED, CLOCK, Box, a_box, escalation
from tests.program import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "escalations"


@pytest.mark.requirement("X-8")
async def test_an_approval_of_other_bytes_than_were_asked_is_refused(path: Path) -> None:
    """R-37: the request was changed on the disk, and the changed one was shown."""
    async with a_box(path) as box:
        asked = escalation()
        ruling = await box.ruling(asked, {"decision": "approved", "requestDigest": "0" * 64})
        assert isinstance(ruling, Declined)
        assert ruling.kind == "invalid"
        assert box.names() == []


@pytest.mark.requirement("X-8")
async def test_an_answer_to_the_same_call_with_other_arguments_is_refused(path: Path) -> None:
    async with a_box(path) as box:
        seen, swapped = escalation(), escalation(arguments={"path": "/etc/shadow"})
        async with box.asked(seen), box.asked(swapped):
            digest = digest_of(box.request(seen).read_bytes())
            box.answer(swapped, {"decision": "approved", "requestDigest": digest})
            await until(lambda: swapped.id in box.rulings)
            box.answer(seen, {"decision": "approved", "requestDigest": digest})
        assert isinstance(box.rulings[swapped.id], Declined)
        assert isinstance(box.rulings[seen.id], Approved)


async def test_without_a_digest_an_approval_is_refused_where_it_is_required(path: Path) -> None:
    async with a_box(path, require_digest=True) as box:
        assert isinstance(await box.ruling(escalation(), APPROVED), Declined)


@pytest.mark.parametrize(
    "raw", [b"null", b"{", b"[]", b'"approved"', b'{"decision":"yes"}', b'{"decision":"appro']
)
@pytest.mark.requirement("X-8", "X-16")
async def test_a_malformed_answer_refuses_and_leaves_nothing_behind(path: Path, raw: bytes) -> None:
    """G12."""
    async with a_box(path) as box:
        ruling = await box.ruling(escalation(), raw)
        assert isinstance(ruling, Declined)
        assert (ruling.by, ruling.kind) == (KERNEL, "invalid")
        assert box.names() == []


async def test_a_directory_that_disappears_refuses_what_is_open_and_is_made_anew(
    path: Path, tmp_path: Path
) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            path.rename(tmp_path / "elsewhere")
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Declined)
        assert ruling.kind == "invalid"
        assert "disappeared" in ruling.reason
        assert list((tmp_path / "elsewhere").iterdir()) == []
        assert isinstance(await box.ruling(escalation(), APPROVED), Approved)


async def test_a_directory_that_is_replaced_by_another_is_not_taken_for_it(
    path: Path, tmp_path: Path
) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            path.rename(tmp_path / "elsewhere")
            path.mkdir(mode=0o700)
            box.answer(asked, APPROVED)
        assert isinstance(box.rulings[asked.id], Declined)


async def test_a_directory_that_cannot_be_made_again_reaches_nobody(
    path: Path, tmp_path: Path
) -> None:
    async with a_box(path) as box:
        path.rmdir()
        path.touch()
        assert isinstance(await box.mailbox.ask(escalation()), Unreachable)


async def test_a_full_disk_reaches_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_box(path) as box:

        def full(descriptor: int, raw: bytes) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            ruling = await box.mailbox.ask(escalation())
        assert isinstance(ruling, Unreachable)
        assert box.names() == []


def _linked(path: Path) -> None:
    (path.parent / "real").mkdir()
    path.symlink_to(path.parent / "real")


def _open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def _open_to_the_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def _of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path.mkdir()
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "spoil", [_linked, _open_to_all, _open_to_the_group, _of_another_user, Path.touch]
)
async def test_a_directory_that_others_could_write_is_refused_at_start(
    path: Path, spoil: Callable[[Path], object]
) -> None:
    """G18."""
    spoil(path)
    mailbox = Mailbox(MailboxSettings(directory=path, assume_listener=True), CLOCK)
    with pytest.raises(ConfigurationError, match="escalation directory"):
        await mailbox.run()


# --- files that must not be believed -------------------------------------------------------------


def _link_to_an_approval(box: Box, response: Path) -> None:
    (box.path / "approval").write_bytes(APPROVED)
    response.symlink_to("approval")


def _dangling_link(box: Box, response: Path) -> None:
    response.symlink_to("nowhere")


def _huge(box: Box, response: Path) -> None:
    (box.path / "x").write_bytes(b'{"decision":"approved","x":"' + b"x" * 65536 + b'"}')
    (box.path / "x").rename(response)


def _pipe(box: Box, response: Path) -> None:
    os.mkfifo(response)


def _directory(box: Box, response: Path) -> None:
    response.mkdir()


def _foreign(box: Box, response: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    foreign = box.path / "x"
    foreign.write_bytes(APPROVED)
    os.chown(foreign, 12345, 12345)
    foreign.rename(response)


@pytest.mark.requirement("X-8", "X-16")
@pytest.mark.parametrize(
    "attack", [_link_to_an_approval, _dangling_link, _huge, _pipe, _directory, _foreign]
)
async def test_what_is_not_a_plain_small_file_of_ours_refuses(
    path: Path, attack: Callable[[Box, Path], None]
) -> None:
    """G12, G18."""
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            attack(box, box.response(asked))
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Declined)
        assert ruling.kind == "invalid"
        assert [name for name in box.names() if name.startswith("re")] == []


async def test_where_the_directory_cannot_be_watched_it_is_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InotifyQueue, "add", lambda *_, **__: False)
    async with a_box(path) as box:
        for _ in range(2):
            assert isinstance(await box.ruling(escalation(), APPROVED), Approved)


@pytest.mark.parametrize(("hours", "counts"), [(0, True), (-48, False), (48, False)])
def test_an_approval_that_was_not_used_counts_for_a_while_by_any_clock(
    tmp_path: Path, hours: int, counts: bool
) -> None:
    place, asked = MailboxDirectory.open(tmp_path / "box", create=True), escalation()
    place.write(request_name(asked.id), request_bytes(asked, Owner(2**30, ""), subject="s"))
    place.write(settled_name(asked.id), b"")
    at = asked.created.timestamp() + hours * 3600
    os.utime(place.path / settled_name(asked.id), (at, at))
    found = adopted(place, None, "s", this_process(), asked.created)
    assert (found is not None) is counts
