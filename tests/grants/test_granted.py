"""Grants are found, counted, listed, revoked and forgotten."""

from datetime import datetime, timedelta

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.grants.patterns import EscalatedCall, candidates
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolsAlike
from ironcurtain_proxy.model.grant import Grant, GrantId
from tests.grants.test_book import (
    NOW,
    a_call,
    allows,
    description,
    fact,
    path,
    places,
    pushing,
    reading,
    remembered,
)

pytestmark = pytest.mark.requirement("X-12")

# --- the book --------------------------------------------------------------------------------


def named(identifier: str, call: EscalatedCall, expires: datetime | None = None) -> Grant:
    grant = remembered(call)
    assert grant is not None
    return replace(grant, id=GrantId(identifier), expires=expires)


def test_grants_are_found_counted_listed_and_revoked() -> None:
    book = GrantBook()
    assert book.find(reading("/data/a/x"), NOW) is None
    book.add(named("one", reading("/data/a/x")))
    book.add(named("two", reading("/srv/b/x")))
    found = book.find(reading("/srv/b/y"), NOW)
    assert found is not None
    assert found.id == "two"
    assert book.note_use(found.id, NOW) == 1
    assert book.note_use(found.id, NOW + timedelta(seconds=1)) == 2
    assert [(kept.grant.id, kept.uses, kept.last_used) for kept in book.list()] == [
        ("one", 0, None),
        ("two", 2, NOW + timedelta(seconds=1)),
    ]
    assert book.revoke(GrantId("two"))
    assert not book.revoke(GrantId("two"))
    assert book.note_use(GrantId("two"), NOW) == 0
    assert book.find(reading("/srv/b/y"), NOW) is None
    assert book.clear() == 1
    assert book.list() == ()
    assert book.find(reading("/data/a/x"), NOW) is None


def test_an_expired_grant_is_forgotten() -> None:
    book = GrantBook()
    book.add(named("one", reading("/etc/x"), NOW + timedelta(minutes=1)))
    assert book.find(reading("/etc/x"), NOW) is not None
    assert book.find(reading("/etc/x"), NOW + timedelta(hours=1)) is None
    assert len(book) == 0


def test_a_grant_added_again_replaces_itself() -> None:
    book = GrantBook()
    book.add(named("one", reading("/etc/x")))
    book.add(named("one", reading("/usr/x")))
    assert len(book) == 1
    assert book.find(reading("/etc/x"), NOW) is None


@pytest.mark.anyio
@pytest.mark.requirement("E-36")
async def test_a_hundred_tasks_at_once_lose_nothing() -> None:
    book = GrantBook()

    async def live(number: int) -> None:
        mine = GrantId(str(number))
        book.add(named(mine, reading(f"/d{number}/x")))
        await anyio.lowlevel.checkpoint()
        found = book.find(reading(f"/d{number}/y"), NOW)
        assert found is not None
        assert found.id == mine
        await anyio.lowlevel.checkpoint()
        book.note_use(mine, NOW)
        if number % 2:
            book.revoke(mine)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(live, number)
    assert [(kept.grant.id, kept.uses) for kept in book.list()] == [
        (str(number), 1) for number in range(0, 100, 2)
    ]


def test_what_may_be_changed_is_said_once_with_its_end() -> None:
    call = a_call(
        fact("path", "read-path", path("/home/me/other/a")),
        fact("path2", "write-path", path("/home/me/other/a")),
        fact("dryRun", "none"),
        roles=("read-path", "write-path"),
        arguments={"path": "/home/me/other/a"},
        tool="edit_file",
    )
    until = replace(places(), ending="until this session ends")
    (found,) = candidates(call, until)
    assert found.description == (
        "Let edit_file change files below ~/other until this session ends "
        "(server filesystem, without dryRun)"
    )


MODES = """access action all amend append command confirm confirmed delete directories dryrun event
force forcewithlease hard ignored keepindex mergemethod method mirror mode noverify op operation
overwrite permission permissions private prune public rebase recursive replace scope setupstream
state strategy subcommand tags verb visibility"""


@pytest.mark.parametrize("name", MODES.split())
def test_a_word_that_changes_what_a_call_does_is_remembered_as_it_was(name: str) -> None:
    words = {name: "one", "note": "a"}
    one = pushing("github.com/acme/w", **words)
    assert allows(one, pushing("github.com/acme/w", **{**words, "note": "b"}))
    assert not allows(one, pushing("github.com/acme/w", **{**words, name: "other"}))
    assert not allows(one, pushing("github.com/acme/w", note="a"))


@pytest.mark.parametrize("domains", [("",), ("github.com/acme/w", "")])
def test_a_remote_that_leads_to_no_known_host_cannot_be_remembered(
    domains: tuple[str, ...],
) -> None:
    assert description(pushing(*domains)) == ""


def test_a_directory_that_was_approved_does_not_open_a_file_that_is_asked_about_by_name() -> None:
    book = GrantBook()
    book.add(named("one", reading("/srv/app/notes.txt")))
    assert book.find(reading("/srv/app/todo.txt"), NOW) is not None
    assert book.find(replace(reading("/srv/app/.env"), goes_by_name=True), NOW) is None


def test_an_approval_of_a_file_by_its_name_covers_this_file_alone() -> None:
    secret = replace(reading("/srv/app/.env"), goes_by_name=True)
    book = GrantBook()
    book.add(named("one", secret))
    assert book.find(secret, NOW) is not None
    for other in ("/srv/app/.env.local", "/srv/app/todo.txt"):
        for by_name in (True, False):
            assert book.find(replace(reading(other), goes_by_name=by_name), NOW) is None


READS: frozenset[ArgumentRole] = frozenset({"read-path"})
ALIKE: ToolsAlike = {"list_directory": ("d2", READS), "search_files": ("d3", READS)}


def by_another(tool: str, definition: str, *texts: str) -> EscalatedCall:
    """The same reading by another tool of the server."""
    call = reading(*texts)
    return replace(call, tool=tool, definition=definition, request=replace(call.request, tool=tool))


def given_for(call: EscalatedCall, alike: ToolsAlike) -> GrantBook:
    """A book with what an approval of the one candidate of a call gives."""
    (found,) = candidates(call, places(), alike)
    book = GrantBook()
    for at, one in enumerate(found.parts or (found,)):
        grant = Grant(id=GrantId(str(at)), pattern=one, created=NOW, source="e", reason="r")
        book.add(grant)
    return book


def test_one_approval_of_a_directory_is_of_each_tool_that_its_words_name() -> None:
    (found,) = candidates(reading("/srv/app/a.txt"), places(), ALIKE)
    assert found.description == (
        "Let read_file, list_directory and search_files read files below /srv/app "
        "(server filesystem)"
    )
    book = given_for(reading("/srv/app/a.txt"), ALIKE)
    tools = (("read_file", "d1"), ("list_directory", "d2"), ("search_files", "d3"))
    for tool, definition in tools:
        assert book.find(by_another(tool, definition, "/srv/app/b.txt"), NOW) is not None
        assert book.find(by_another(tool, definition, "/srv/other/b.txt"), NOW) is None
        assert book.find(by_another(tool, "changed since", "/srv/app/b.txt"), NOW) is None
    assert [one.grant.pattern.description for one in book.list()][1] == (
        "Let list_directory read files below /srv/app (server filesystem)"
    )


def test_a_tool_that_the_words_do_not_name_is_asked_about() -> None:
    book = given_for(reading("/srv/app/a.txt"), ALIKE)
    assert book.find(by_another("directory_tree", "d2", "/srv/app/b.txt"), NOW) is None


def test_a_flag_of_another_tool_is_asked_about() -> None:
    book = given_for(reading("/srv/app/a.txt"), ALIKE)
    call = by_another("search_files", "d3", "/srv/app/b.txt")
    follows = replace(call, arguments={**call.arguments, "recursive": True})
    assert book.find(call, NOW) is not None
    assert book.find(follows, NOW) is None


def test_an_approval_of_a_file_by_its_name_is_of_each_tool_named_and_of_that_file_alone() -> None:
    secret = replace(reading("/srv/app/.env"), goes_by_name=True)
    (found,) = candidates(secret, places(), ALIKE)
    assert found.description == (
        "Let read_file, list_directory and search_files read /srv/app/.env (server filesystem)"
    )
    book = given_for(secret, ALIKE)

    def is_covered(tool: str, definition: str, named: str) -> bool:
        call = replace(by_another(tool, definition, named), goes_by_name=True)
        return book.find(call, NOW) is not None

    assert is_covered("search_files", "d3", "/srv/app/.env")
    for tool, definition, named in (
        ("search_files", "d3", "/srv/app/.env.local"),
        ("search_files", "d3", "/srv/app"),
        ("search_files", "changed since", "/srv/app/.env"),
        ("directory_tree", "d2", "/srv/app/.env"),
    ):
        assert not is_covered(tool, definition, named)
    ordinary = given_for(reading("/srv/app/a.txt"), ALIKE)
    other = replace(by_another("search_files", "d3", "/srv/app/.env"), goes_by_name=True)
    assert ordinary.find(other, NOW) is None


def test_no_other_tool_is_approved_with_a_place_that_the_call_left_out() -> None:
    """What a tool takes for the place that was not named is its own matter."""
    call = a_call(
        fact("path", "read-path", path("/srv/app/a.txt")),
        fact("into", "write-path"),
        arguments={"path": "/srv/app/a.txt"},
    )
    (found,) = candidates(call, places(), ALIKE)
    assert found.parts == ()


def test_a_tool_that_only_writes_is_approved_with_one_that_also_reads_what_it_changes() -> None:
    call = a_call(
        fact("path", ("read-path", "write-path"), path("/srv/app/a.txt")), tool="edit_file"
    )
    book = given_for(call, {"write_file": ("d2", frozenset({"write-path"}))})
    writing = replace(
        a_call(fact("path", "write-path", path("/srv/app/b.txt")), tool="write_file"),
        definition="d2",
    )
    assert book.find(writing, NOW) is not None
    assert book.find(replace(writing, tool="read_file"), NOW) is None


def test_a_list_of_tools_that_nobody_would_read_is_not_approved() -> None:
    many: ToolsAlike = {f"read_{number}": ("d2", READS) for number in range(13)}
    (found,) = candidates(reading("/srv/app/a.txt"), places(), many)
    assert found.description == "Let read_file read files below /srv/app (server filesystem)"
    assert found.parts == ()
