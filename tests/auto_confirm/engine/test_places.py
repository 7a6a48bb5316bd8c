"""Where paths lie, and how well a session stands."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ContextScore,
    FilesFound,
    SafePath,
    SessionPlaces,
    WorkContext,
    context_score,
    in_temporary,
)
from ironcurtain_proxy.auto_confirm.engine.settings import NightMode
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.values import RealPath
from tests.tables import table

PLACES = SessionPlaces(
    workspace=RealPath.from_text("/srv/project"), home=RealPath.from_text("/Users/ann")
)


def at(text: str) -> RealPath:
    return RealPath.from_text(text)


@pytest.mark.parametrize(
    ("path", "public"),
    table("auto_confirm/engine/places.public_is_what_anyone_in", list[tuple[str, bool]]),
)  # fmt: skip
@pytest.mark.requirement("B-18", "B-74")
def test_public_is_what_anyone_in_the_project_may_read(path: str, public: bool) -> None:
    files = frozenset({at(path)}) if path.rpartition("/")[2] not in {"Documents", "x"} else ()
    found = FilesFound(files=frozenset(files), own=frozenset({at("/tmp/a")}))
    assert replace(PLACES, found=found).is_public(at(path)) == public


@pytest.mark.requirement("B-17", "B-71")
def test_temporary_is_what_lies_below_tmp() -> None:
    yes, no = ("/tmp/a", "/private/tmp/a/b"), ("/tmp", "/tmpx/a", "/var/tmp/a", "/private/a")
    assert all(in_temporary(at(path)) for path in yes)
    assert not any(in_temporary(at(path)) for path in no)


@pytest.mark.parametrize(
    ("row", "path", "inside"),
    [
        ("/tmp/", "/tmp/a", True), ("/tmp/", "/tmpa", False),
        ("project_root/", "/srv/project/a", True), ("project_root/", "/srv/other", False),
        (".git/", "/srv/project/.git/HEAD", True), (".git/", "/srv/project/a", False),
        ("project_root/src", "/srv/project/src/a", True), ("/", "/etc/a", False),
        ("", "/srv/project/a", False), ("../", "/srv/other", False), ("./", "/srv/project", False),
    ],
)  # fmt: skip
@pytest.mark.requirement("B-115", "B-150")
def test_a_safe_path_contains_by_components(row: str, path: str, inside: bool) -> None:
    assert SafePath(path=row).contains(at(path), "edit", PLACES) == inside


def test_without_a_workspace_a_relative_safe_path_contains_nothing() -> None:
    assert not SafePath(path=".git/").contains(at("/.git/HEAD"), "edit", SessionPlaces())


HERE = WorkContext(directory=at("/srv/project"), environment={"A": "1", "B": "2"}, branch="x")


@pytest.mark.requirement("B-26")
@pytest.mark.parametrize(
    ("actual", "earned"),
    [
        (HERE, 170),
        (WorkContext(directory=at("/srv/project")), 100),
        (WorkContext(directory=at("/srv")), 50),
        (WorkContext(directory=at("/srv/project/sub")), 25),
        (WorkContext(directory=at("/srv/projects")), 0),
        (WorkContext(environment={"A": "1", "B": "3"}), 20),
        (WorkContext(branch="x"), 30),
        (WorkContext(), 0),
    ],
)
def test_a_context_earns_points_for_what_is_required(actual: WorkContext, earned: int) -> None:
    assert context_score(required=HERE, actual=actual) == ContextScore(earned, 170)


@pytest.mark.requirement("B-26", "B-28")
def test_a_score_is_compared_exactly_and_nothing_required_earns_nothing() -> None:
    assert not ContextScore(120, 150).exceeds(80)
    assert ContextScore(170, 210).exceeds(80)
    assert ContextScore(170, 210).hundredths == 80
    assert not context_score(required=WorkContext(), actual=HERE).exceeds(0)
    assert ContextScore().hundredths == 0


@pytest.mark.requirement("B-29", "B-158", "B-159", "B-160", "B-161")
@pytest.mark.parametrize(
    ("hour", "minute", "night"),
    [(20, 59, False), (21, 0, True), (0, 0, True), (5, 59, True), (6, 0, False), (12, 0, False)],
)
def test_night_is_from_nine_to_six_where_the_operator_is(
    hour: int, minute: int, night: bool
) -> None:
    moment = datetime(2026, 3, 4, hour, minute, tzinfo=timezone(timedelta(hours=9)))
    assert NightMode().is_on(moment) == night
    assert not NightMode(enabled=False).is_on(moment)


def test_a_night_may_lie_within_a_day_or_fill_it() -> None:
    assert NightMode(start_hour=1, end_hour=3).is_on(datetime(2026, 1, 1, 2, tzinfo=UTC))
    assert not NightMode(start_hour=1, end_hour=3).is_on(datetime(2026, 1, 1, 3, tzinfo=UTC))
    assert NightMode(start_hour=4, end_hour=4).is_on(datetime(2026, 1, 1, 3, tzinfo=UTC))


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(KernelError):
        NightMode().is_on(datetime(2026, 1, 1, 2))  # noqa: DTZ001  what is refused
