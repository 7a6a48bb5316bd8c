"""A rehearsal as text."""

from collections.abc import Iterator
from typing import Final

from ironcurtain_proxy.rehearsal.playing import Rehearsed
from ironcurtain_proxy.rehearsal.recorded import Recording
from ironcurtain_proxy.rehearsal.scene import RULES, SceneRules
from ironcurtain_proxy.rehearsal.tally import WAYS, Savings, Tally, per_100

_NAMES: Final[dict[SceneRules, str]] = {"shipped": "no preset"}
_TITLES: Final[dict[Savings, str]] = {
    "each": "asked each time",
    "remembered": "approved once",
    "contained": "and contained",
}
_MOST_NAMES: Final = 6


def lines_of(
    found: Rehearsed, recording: Recording, shown: SceneRules, most: int, *, with_grants: bool
) -> Iterator[str]:
    """The report.

    Args:
        found: the result of the rehearsal.
        recording: the transcripts.
        shown: the rules whose questions are listed.
        most: the most examples of each kind.
        with_grants: whether there was a file of grants.
    """
    yield f"{found.calls} calls of {found.sessions} sessions in {recording.files} files"
    yield from _left_out(found, recording)
    yield ""
    yield (
        f"{'questions per 100 calls':<24}"
        + "".join(f"{_TITLES[way]:>17}" for way in WAYS)
        + (f"{'denied':>10}")
    )
    for rules in RULES:
        tally = found.tallies[rules]
        cells = [f"{per_100(tally.asked[way], found.calls):.2f}" if _has(rules, way, tally) else "-"
                 for way in WAYS]  # fmt: skip
        denied = f"{per_100(tally.denied, found.calls):.2f}"
        yield (
            f"  {_NAMES.get(rules, rules):<22}"
            + "".join(f"{cell:>17}" for cell in cells)
            + (f"{denied:>10}")
        )
        if with_grants:
            spared, all_ = tally.spared_by_grants, tally.asked["each"]
            yield f"    the grants of the file would have spared {spared} of {all_}"
    yield from _questions(found, shown, most)


def _has(rules: SceneRules, way: Savings, tally: Tally) -> bool:
    if way == "each":
        return True
    return way in tally.asked or (rules == "coding" or (way == "remembered" and rules != "shipped"))


def _left_out(found: Rehearsed, recording: Recording) -> Iterator[str]:
    broken = recording.broken_lines + found.broken
    if broken:
        yield f"{broken} lines or calls are broken: passed over"
    for reason in recording.unreadable:
        yield f"cannot be read: {reason}"
    if recording.other_files:
        yield f"{recording.other_files} files hold no transcript of a known format"
    if found.without_place:
        yield (f"{found.without_place} calls do not say where they were made: "
               "name the directory with --workspace")  # fmt: skip
    if found.passed_over:
        names = [name for name, _ in found.passed_over.most_common(_MOST_NAMES)]
        more = " …" if len(found.passed_over) > _MOST_NAMES else ""
        total = sum(found.passed_over.values())
        yield f"{total} calls of other tools are not rehearsed: {', '.join(names)}{more}"


def _questions(found: Rehearsed, shown: SceneRules, most: int) -> Iterator[str]:
    tally = found.tallies[shown]
    for way in WAYS:
        kinds = tally.kinds.get(way)
        if not kinds:
            continue
        yield ""
        yield f"{_NAMES.get(shown, shown)}, {_TITLES[way]}: {tally.asked[way]} questions"
        for kind, number in kinds.most_common():
            yield f"  {number:6}  {kind}"
            for example, times in tally.examples[way, kind].most_common(most):
                yield f"          {times:6}  {example}"
    if tally.denials:
        yield ""
        yield f"{_NAMES.get(shown, shown)}, denied: {tally.denied} calls"
        for rule, number in tally.denials.most_common():
            yield f"  {number:6}  {rule}"
