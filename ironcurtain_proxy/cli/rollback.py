"""`ironcurtain-proxy rollback`: undo the changes of a call.

A point may hold a hook that a process had just written, before it was found and taken away. So the
files that a rollback brings back are checked like those that a call leaves behind. A file stays if
it can make nothing run, or if it was there before the first call of a session.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.output import (
    complain,
    is_confirmed,
    picked,
    say,
    say_json,
    saying_what_holds,
    shortened,
    terminal_width,
)
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.reply import Change
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import ControlFile, RemovedFiles, read_index
from ironcurtain_proxy.snapshots.history import Entry, Point, Tree
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.planning import ConflictError, NoPointError
from ironcurtain_proxy.snapshots.rewinding import (
    KeptTimeline,
    ListedPoint,
    RollbackOutcome,
    RollbackRequest,
    find,
    kept,
    roll_back,
)
from ironcurtain_proxy.wiring.containment import TIMELINES, limits_of

# --- what a rollback may bring back

_NOT_SEEN: Final = "hooks and settings that the rollback brings back are not looked after"


@contextmanager
def looking_after(
    workspace: RealPath, state: Path, say: Callable[[str], None], starts: Collection[Tree]
) -> Iterator[None]:
    """Remove and report restored files that steer git or an agent.

    Args:
        workspace: what is rolled back.
        state: the proxy's own directory, which keeps what is taken away.
        say: is told each.
        starts: the workspace as it was when sessions began.
    """
    try:
        lookout = ControlLookout(
            (str(workspace),),
            RemovedFiles(state / "put-back"),
            is_known=lambda path, item: _was_there(path, item, str(workspace), starts),
            own_places=(str(state.resolve()),),
        )
    except OSError as error:
        say(f"{_NOT_SEEN}: {error.strerror}")
        yield
        return
    try:
        lookout.begin()
        if lookout.unseen:
            say(f"{_NOT_SEEN}: {lookout.unseen}")
        yield
    finally:
        for one in lookout.look():
            say(one.full)
        lookout.close()


def _was_there(path: str, item: ControlFile, workspace: str, starts: Collection[Tree]) -> bool:
    content = item.content
    if content is None and path.endswith("/index"):
        # The content of an index of git is not kept by a look.
        index = read_index(path)
        content = None if index is None else index.content
    if content is None:
        return False
    if item.is_link:
        kind, said = "link", os.fsdecode(content)
    else:
        kind, said = "file", hashlib.sha256(content).hexdigest()
    found = [tree.get(path.removeprefix(f"{workspace}/")) for tree in starts]
    return any(one is not None and (one.kind, one.content) == (kind, said) for one in found)


_MOST_SHOWN: Final = 50


def run(options: argparse.Namespace) -> int:
    """Undo the changes. Return 1 if that failed."""
    settings = load_settings(os.environ.copy(), options.config)
    timelines = kept(settings.state_dir / TIMELINES)
    if options.list or (options.id is None and options.to is None):
        _list(timelines, as_json=options.json)
        return 0
    reference = options.to if options.id is None else options.id
    found = find(reference, timelines) if reference else None
    if found is None:
        known = "`ironcurtain-proxy rollback --list` shows the calls"
        raise NoPointError(f"{reference!r} is no call of the timeline: {known}")
    return _take_back(options, found, settings)


def _take_back(
    options: argparse.Namespace, found: tuple[KeptTimeline, Point], settings: Settings
) -> int:
    timeline, point = found
    request = RollbackRequest(
        directory=timeline.directory,
        workspace=timeline.workspace,
        point=point,
        rewind=options.to is not None,
        force=options.force,
        dry_run=options.dry_run,
    )
    try:
        outcome = take_back(request, limits_of(settings), settings.state_dir, as_json=options.json)
    except ConflictError as error:
        _refused(error, as_json=options.json)
        return 1
    if options.json:
        say_json(outcome_json(outcome, request))
    else:
        tell(outcome, request)
    is_done = not outcome.failed and (outcome.id is not None or not outcome.plan.steps)
    return 0 if is_done or options.dry_run else 1


def _list(timelines: list[KeptTimeline], *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "calls": [*listed_json(timelines)],
                "dropped": dropped_json(timelines),
                "notHeld": not_held_json(timelines),
            }
        )
        return
    told = list(lines(timelines, terminal_width()))
    for line in told or ["nothing can be put back: no point is kept"]:
        say(line)


def _refused(error: ConflictError, *, as_json: bool) -> None:
    if as_json:
        say_json({"error": str(error), "conflicts": [visible(name) for name in error.conflicts]})
    complain(f"{error}:")
    _complain_of(error.conflicts)
    complain("--force overwrites it")


def _complain_of(conflicts: tuple[str, ...]) -> None:
    for name in conflicts[:_MOST_SHOWN]:
        complain(f"  {visible(name)}")
    if len(conflicts) > _MOST_SHOWN:
        complain(f"  and {len(conflicts) - _MOST_SHOWN} more")


# --- rollback by the timeline ---------------------------------------------------------------------
# The work of `rollback` on the timeline, and its output.
_MOST_NAMED: Final = 6
_COLUMNS: Final = 160
"""Of a row of the list, where no terminal says how many there are."""
_SHORT: Final = 12
"""The characters of an id, and of a session's name, that are shown."""
_LONGEST_TOOL: Final = 32
_LEAST: Final = 30
"""The characters that changes have at any rate, however narrow the terminal is."""
_MAY_RUN: Final = 0o111


def take_back(
    request: RollbackRequest, limits: Limits, state: Path, *, as_json: bool
) -> RollbackOutcome:
    """Undo the changes. On a terminal, ask first if other changes would be undone with them.

    Args:
        request: the changes to undo.
        limits: those of the timeline.
        state: the proxy's own directory.
        as_json: whether a program reads the output, so that nobody is asked.

    Raises:
        ConflictError: something prevents it; nothing was done.
        RollbackError: some or all of the changes could not be undone.
    """

    def confirm(outcome: RollbackOutcome) -> bool:
        if as_json or request.force:
            return True
        _tell_besides(outcome, is_trial=False)
        if not sys.stdin.isatty():
            return True
        return is_confirmed("go on?")

    looking = partial(looking_after, request.workspace, state, lambda text: complain(visible(text)))
    with saying_what_holds(lambda: "run it again to put back what is not put back yet"):
        return roll_back(request, limits, SystemClock().now, confirm, looking)


def tell(outcome: RollbackOutcome, request: RollbackRequest) -> None:
    """Print the changes that were undone, or would be."""
    plan = outcome.plan
    done = outcome.id is not None
    if not plan.steps and not plan.lost:
        say("nothing to do: all files that are kept are as they were before the call")
        _some(_unseen(outcome.unseen))
        return
    if not done and not request.dry_run:
        say("nothing was put back")
        return
    would = "" if done else "would be "
    _some([f"{would}{step.act}  {visible(step.path)}" for step in plan.steps])
    _some([f"stays, as it may be needed later  {visible(path)}" for path in plan.stays])
    _some([f"stays, as something is in it that is not held  {visible(p)}" for p in outcome.stayed])
    _some(
        [
            f"moved aside, as something is in it that is not held  {visible(path)} to {visible(to)}"
            for path, to in outcome.aside
        ]
    )
    _some([f"cannot be put back, as it was not held  {visible(step.path)}" for step in plan.lost])
    _some(_unseen(outcome.unseen))
    if request.dry_run:
        _tell_besides(outcome, is_trial=True)
        if outcome.conflicts:
            complain("it would be refused without --force:")
            for one in outcome.conflicts[:_MOST_SHOWN]:
                complain(f"  {visible(one)}")
    _tell_failed(outcome.failed)
    if outcome.id is not None:
        say(f"to take this back: ironcurtain-proxy rollback {outcome.id[:12]}")


def _tell_failed(failed: tuple[tuple[str, str], ...]) -> None:
    if not failed:
        return
    complain("the rollback is not done:")
    for path, why in failed[:_MOST_SHOWN]:
        complain(f"  {visible(path)}: {why}")
    if len(failed) > _MOST_SHOWN:
        complain(f"  and {len(failed) - _MOST_SHOWN} more")
    complain("end what writes there, and run it again with --force")


def _tell_besides(outcome: RollbackOutcome, *, is_trial: bool) -> None:
    too = "would also be taken back" if is_trial else "is also taken back"
    _some([f"{too}  {one.call}  {_when(one.at)}  {_what(one)}" for one in outcome.others])
    _some(
        [
            f"{too}, though no known call did it  {one.kind} {visible(one.path)}"
            for one in outcome.nobodys
        ]
    )


def _some(lines: list[str]) -> None:
    for line in lines[:_MOST_SHOWN]:
        say(line)
    if len(lines) > _MOST_SHOWN:
        say(f"and {len(lines) - _MOST_SHOWN} more (--json shows all)")


def lines(timelines: list[KeptTimeline], width: int | None = None) -> Iterator[str]:
    """Yield the lines of the points that can be undone, and of those that cannot.

    Args:
        timelines: all of them. Of several each begins with a line of its workspace.
        width: the columns of a line, or None if they are not known.
    """
    most, several = width or _COLUMNS, len({one.workspace for one in timelines}) > 1
    for one in timelines:
        if several and (one.points or one.dropped.points or one.not_held):
            yield f"{visible(str(one.workspace))}:"
        for listed in one.points:
            yield _line(listed, most, one.points)
        if one.dropped.points:
            until = "" if one.dropped.until is None else f", up to {_when(one.dropped.until)}"
            yield f"dropped: {one.dropped.points} older points{until}"
        if one.not_held:
            yield f"not held: {_fitting([*map(visible, one.not_held)], most - len('not held: '))}"


def _line(listed: ListedPoint, width: int, beside: Sequence[ListedPoint]) -> str:
    """Return when a point was made, by whom, and what was changed, as far as it fits."""
    point = listed.point
    changes = [
        f"{one.kind} {_told(one.path)}"
        + "".join([f" ({name} {value})" for name, value in _details(listed, one).items()])
        for one in listed.changes
    ]
    nothing = _nothing_changed(listed.unseen) if listed.is_settled else "is under way"
    short = point.call[:_SHORT]
    is_clear = sum(one.point.call.startswith(short) for one in beside) == 1
    head = f"{short if is_clear else point.call}  {_when(point.at)}  "
    head += f"{shortened(_what(point), _LONGEST_TOOL)}  "
    session = f"session {shortened(visible(point.session), _SHORT)}  " if point.session else ""
    head += session if len(head + session) + _LEAST <= width else ""
    return head + _fitting(changes or [nothing], max(width - len(head), _LEAST))


def _fitting(names: Sequence[str], most: int) -> str:
    """Return as many names as fit into some characters, the first one at any rate.

    A name that is too long has `…` in its middle, so that its end is seen.
    """
    shown = 0
    while shown < len(names) and len(_first(names, shown + 1)) <= most:
        shown += 1
    if shown:
        return _first(names, shown)
    half = max(most - len(_first(["", *names[1:]], 1)), _SHORT) // 2
    return _first([f"{names[0][:half]}…{names[0][1 - half :]}", *names[1:]], 1)


def _first(names: Sequence[str], shown: int) -> str:
    hidden = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {hidden} more (--json)" if hidden else "")


def _told(path: str) -> str:
    """Return a path among others in a line, quoted if it could pass for several."""
    shown = visible(path)
    return f'"{shown}"' if ", " in path or path != path.strip() else shown


def _details(listed: ListedPoint, change: Change) -> dict[str, Json]:
    """Return what the name of a changed path does not say: where it leads, or that it can run."""
    match listed.left.get(change.path):
        case Entry(kind="link", content=target):
            return {"target": visible(target)}
        case Entry(kind=kind, mode=mode):
            shows = change.kind == "mode" or (kind == "file" and mode & _MAY_RUN)
            return {"mode": f"{mode:o}"} if shows else {}
        case None:
            return {}


def _nothing_changed(unseen: tuple[str, ...]) -> str:
    return (
        f"nothing changed outside {_named(map(visible, unseen))}" if unseen else "nothing changed"
    )


def _unseen(unseen: tuple[str, ...]) -> list[str]:
    return [f"changes in {_named(map(visible, unseen))} are not kept"] if unseen else []


def _what(point: Point) -> str:
    if point.kind == "rollback":
        return f"rollback {point.tool}"
    return visible(f"{point.server}/{point.tool}")


def _named(names: Iterable[str]) -> str:
    found = list(names)
    hidden = len(found) - _MOST_NAMED
    more = f" and {hidden} more (--json shows all)" if hidden > 0 else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def _when(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def listed_json(timelines: list[KeptTimeline]) -> Iterator[dict[str, Json]]:
    """Yield the points as JSON."""
    for one in timelines:
        for listed in one.points:
            point = listed.point
            yield {
                "id": point.call,
                **picked(point, "kind server tool session"),
                "at": point.at.isoformat(),
                "workspace": visible(str(one.workspace)),
                "finished": listed.is_settled,
                "changes": [
                    {"path": visible(c.path), "kind": c.kind, **_details(listed, c)}
                    for c in listed.changes
                ],
                "notLookedInto": [visible(path) for path in listed.unseen],
            }


def dropped_json(timelines: list[KeptTimeline]) -> list[Json]:
    """Return the points that are no longer kept, by workspace."""
    return [
        {
            "workspace": visible(str(one.workspace)),
            "points": one.dropped.points,
            "until": None if one.dropped.until is None else one.dropped.until.isoformat(),
        }
        for one in timelines
        if one.dropped.points
    ]


def not_held_json(timelines: list[KeptTimeline]) -> list[Json]:
    """Return the files that could not be restored."""
    return [
        {"workspace": visible(str(one.workspace)), "paths": [visible(p) for p in one.not_held]}
        for one in timelines
        if one.not_held
    ]


def outcome_json(outcome: RollbackOutcome, request: RollbackRequest) -> dict[str, Json]:
    """Return the changes that were undone, or would be."""
    plan = outcome.plan
    return {
        "id": request.point.call,
        "dryRun": request.dry_run,
        "rollback": outcome.id,
        "changes": [{"what": visible(step.path), "kind": step.act} for step in plan.steps],
        "conflicts": [visible(one) for one in outcome.conflicts],
        "notHeld": [visible(step.path) for step in plan.lost],
        "notLookedInto": [visible(path) for path in outcome.unseen],
        "notDone": [{"path": visible(path), "why": why} for path, why in outcome.failed],
        "movedAside": [{"path": visible(path), "to": visible(to)} for path, to in outcome.aside],
        "kept": [visible(path) for path in (*plan.stays, *outcome.stayed)],
        "alsoTakenBack": [point.call for point in outcome.others],
        "unknownChanges": [
            {"path": visible(one.path), "kind": one.kind} for one in outcome.nobodys
        ],
    }
