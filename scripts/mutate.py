"""Change the pure modules one place at a time and count which changes the tests notice.

    mutate.py [--sample N] [--seed S] [--module NAME ...]

One change after the other: a process of its own imports the changed module in place of the real one
and runs the module's tests until the first fails. Nothing is written into the working copy.
"""

import argparse
import ast
import contextlib
import copy
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "ironcurtain_proxy"
EXPLAINED: Final = ROOT / "scripts" / "mutate_explained.txt"
_RULES: Final = (
    "decision/test_matching", "decision/test_authorizer", "decision/test_names",
    "decision/test_excepting", "decision/test_gravest_first", "decision/test_operations",
    "decision/test_unknown_tools", "decision/test_uris", "decision/test_explanation",
    "decision/test_explained_steps",
    "decision/test_properties", "decision/test_left_out_values", "properties/test_authorizer",
)  # fmt: skip
_CALLS: Final = (
    "mediation/test_mediator", "mediation/test_mediation_guards", "mediation/test_approved_calls",
    "mediation/test_ended_calls", "mediation/test_plans", "mediation/test_asked_again",
    "mediation/test_policy_change", "mediation/test_containing", "mediation/test_withheld",
)  # fmt: skip
_GRANTS: Final = ("grants/test_book", "grants/test_granted", "grants/test_grant_reach",
    "grants/test_grant_settlement", "grants/test_grant_properties", "grants/test_family_settlement",
    "grants/test_whole_calls")  # fmt: skip
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "decision.breaker": ("decision/test_breaker",),
    "decision.explanation": (
        "decision/test_explanation", "decision/test_explained_steps", "decision/test_names",
        "decision/test_operations", "decision/test_unknown_tools", "decision/test_uris",
    ), "decision.authorizer": (
        *_RULES, "decision/test_prior_consent", "decision/test_containment",
        "decision/test_questions",
    ),
    "decision.rules": _RULES,
    "mediation.mediator": _CALLS, "mediation.judge": _CALLS, "mediation.outcome": _CALLS,
    "mediation.escalated": _CALLS,
    "grants.patterns": _GRANTS, "grants.grant_settlement": _GRANTS,
    "facts.paths": ("facts/test_paths", "facts/test_namesakes"),
    "facts.pushes": ("facts/test_remotes", "facts/test_bare_repositories"),
}  # fmt: skip
"""Each module with the few quick tests that hold it."""

Outcome: TypeAlias = Literal["killed", "survived", "timeout", "explained"]
_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_LIMIT_SECONDS: Final = 60
_LIMIT_BYTES: Final = 4_000_000_000
_INSIDE: Final = "IRONCURTAIN_MUTANT"
"""Set in the process that runs tests: a mutation run started by a test would never end."""
_PASSED, _USAGE, _NO_TESTS = 0, 4, 5

# Python imports a `sitecustomize` at its start, so processes that a test starts are changed too.
# The limit of CPU time ends the tests even if the process that watches them was killed.
_CUSTOM: Final = """
import importlib.util, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
class Changed:
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            return importlib.util.spec_from_file_location(name, {file!r})
sys.meta_path.insert(0, Changed)
"""


class Mutant(NamedTuple):
    """A module's source with one change."""

    module: str
    line: int
    change: str
    source: str


def source_of(module: str) -> str:
    """The text of its file."""
    return (ROOT / PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


def changes(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912, PLR0915  a table of operators
    """Each thing a node may be replaced by."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPS:
            yield ast.Compare(node.left, [_SWAPS[type(op)]()], node.comparators)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(_SWAPS[type(op)](), values)
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=op) if type(op) in _SWAPS:
            yield ast.BinOp(node.left, _SWAPS[type(op)](), node.right)
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
            yield from (node.left, node.right)
        case ast.Constant(value=int() as value):
            yield ast.Constant((not value) if isinstance(value, bool) else value + 1)
        case ast.If() | ast.IfExp():
            for constant in (True, False):
                changed = copy.copy(node)
                changed.test = ast.Constant(constant)
                yield changed
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Call(func=ast.Name(id="any" | "all" as name)):
            other = ast.Name("all" if name == "any" else "any", ast.Load())
            yield ast.Call(other, node.args, node.keywords)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Set(elts=elts) | ast.Tuple(elts=elts, ctx=ast.Load()) if len(elts) > 1:
            for at in range(len(elts)):
                yield type(node)(elts=elts[:at] + elts[at + 1 :])
        case ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()):
            if "_log." not in ast.unparse(node):
                yield ast.Pass()


def places(tree: ast.AST) -> Iterator[tuple[list[ast.AST] | dict[str, ast.AST], int | str]]:
    """Each child that may be replaced: what holds it, and where. Types are left alone."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list", "bases", "slice", "msg"}:
            continue
        if isinstance(tree, ast.AnnAssign) and "TypeAlias" in ast.unparse(tree.annotation):
            continue
        holder, ats = (
            (value, range(len(value))) if isinstance(value, list) else (vars(tree), [field])
        )
        for at in ats:
            if isinstance(holder[at], ast.AST):
                yield holder, at
                yield from places(holder[at])


def mutants_of(module: str) -> list[Mutant]:
    """All changes of one module, each a source that compiles."""
    tree = ast.parse(source_of(module))
    found: dict[tuple[int, str], Mutant] = {}
    for holder, at in places(tree):
        node = holder[at]
        for new in changes(node):
            holder[at] = ast.copy_location(new, node)
            change = f"{_words(node)} -> {_words(new)}"
            line = getattr(node, "lineno", 0)
            found[line, change] = Mutant(module, line, change, ast.unparse(tree))
            holder[at] = node
    return list(found.values())


def _words(node: ast.AST) -> str:
    shown = f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else ast.unparse(node)
    return " ".join(shown.split())[:120]


def outcome_of(mutant: Mutant) -> Outcome:
    """Run the tests with the change, in a process group that ends before this returns."""
    files = [f"tests/{name}.py" for name in MODULES[mutant.module]]
    with tempfile.TemporaryDirectory(prefix="mutate-") as place:
        changed = Path(place, "changed.py")
        changed.write_text(mutant.source, encoding="utf-8")
        name, seconds = f"{PACKAGE}.{mutant.module}", _LIMIT_SECONDS
        custom = _CUSTOM.format(name=name, file=str(changed), seconds=seconds)
        Path(place, "sitecustomize.py").write_text(custom, encoding="utf-8")
        child = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
             f"--basetemp={place}/tests", "--hypothesis-seed=0", "--timeout=20", *files],
            cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1", _INSIDE: "1"},
        )  # fmt: skip
        try:
            status = child.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if status in (_USAGE, _NO_TESTS):
        sys.exit(f"pytest could not run {' '.join(files)} (status {status})")
    return "survived" if status == _PASSED else "killed"


def chosen_by(names: list[str]) -> list[str]:
    """The modules of these names, or folders, after a look whether all their tests are there."""
    chosen = [
        module
        for module in MODULES
        if not names or any(f"{module}.".startswith(f"{name}.") for name in names)
    ]
    tests = {name for module in chosen for name in MODULES[module]}
    missing = sorted(one for one in tests if not (ROOT / "tests" / f"{one}.py").is_file())
    if missing or not chosen:
        sys.exit(f"no such module, or no such tests: {', '.join(missing or names)}")
    return chosen


def told(title: str, counts: Counter[Outcome]) -> float:
    """Print a line of the table; gives the share of what was killed."""
    tried = sum(counts[one] for one in ("killed", "survived", "timeout"))
    rate = 100 * counts["killed"] / tried if tried else 100.0
    words = "  ".join(f"{counts[one]} {one}" for one in get_args(Outcome))
    sys.stdout.write(f"{title:26}{words}  {rate:.1f} %\n")
    return rate


def main() -> int:
    """Draw, run, print. 1 if less than the wanted share was killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", default=[], help="or a folder; repeatable")
    parser.add_argument("--sample", type=int, default=25, help="changes in all (0: each one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-least", type=float, default=95, metavar="PERCENT")
    options = parser.parse_args()
    chosen = chosen_by(options.module)
    if _INSIDE in os.environ:
        sys.exit("a mutation run does not start another")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_BYTES, _LIMIT_BYTES))
    for name in {MODULES[name]: name for name in chosen}.values():
        if outcome_of(Mutant(name, 0, "", source_of(name))) != "survived":
            sys.exit(f"the tests of {name} do not pass in time without any change")
    drawn = [mutant for name in chosen for mutant in mutants_of(name)]
    random.Random(options.seed).shuffle(drawn)  # noqa: S311  a sample
    # A line `MODULE: CHANGE # why` for each change that means the same. No line numbers: they move.
    known = {line.rpartition(" # ")[0] for line in EXPLAINED.read_text("utf-8").splitlines()}
    counts = {name: Counter[Outcome]() for name in chosen}
    for mutant in drawn[: options.sample or None]:
        is_known = f"{mutant.module}: {mutant.change}" in known
        outcome: Outcome = "explained" if is_known else outcome_of(mutant)
        counts[mutant.module][outcome] += 1
        if outcome in {"survived", "timeout"}:
            sys.stdout.write(f"{outcome} {mutant.module}:{mutant.line}: {mutant.change}\n")
            sys.stdout.flush()
    for name in chosen:
        told(name, counts[name])
    return 0 if told("all", sum(counts.values(), Counter())) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
