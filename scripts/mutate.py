"""Change the pure modules one place at a time and count which changes the tests notice.

    mutate.py [--sample N] [--seed S] [--jobs J] [MODULE ...]

A child process for each change imports the changed module in place of the real one and runs the
module's own tests until the first fails. Nothing is written into the working copy.
"""

import argparse
import ast
import copy
import ctypes
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, NoReturn, TypeAlias

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "ironcurtain_proxy"
EXPLAINED: Final = ROOT / "scripts" / "mutate_explained.txt"
_GRANTS: Final = (
    "tests/grants/test_book.py", "tests/grants/test_grant_properties.py",
    "tests/grants/test_grant_settlement.py",
)  # fmt: skip
_DECISION: Final = (
    "tests/decision/test_matching.py", "tests/decision/test_authorizer.py",
    "tests/decision/test_breaker.py", "tests/decision/test_explanation.py",
    "tests/decision/test_properties.py", "tests/policy", "tests/properties/test_authorizer.py",
    "tests/properties/test_explanation.py", "tests/decision/test_prior_consent.py",
)  # fmt: skip
_MEDIATION: Final = (
    "tests/mediation/test_mediator.py", "tests/mediation/test_mediation_guards.py",
    "tests/mediation/test_plans.py",
    "tests/mediation/test_approved_calls.py", "tests/mediation/test_ended_calls.py",
    "tests/mediation/test_withdrawn_anywhere.py",
    "tests/snapshots/test_under_way.py",
)  # fmt: skip
_PATHS: Final = (
    "tests/facts/test_paths.py", "tests/facts/test_path_properties.py",
    "tests/facts/test_namesakes.py", "tests/facts/test_spelling.py",
    "tests/facts/test_mounts.py", "tests/facts/test_facts.py",
)  # fmt: skip
_REMOTES: Final = (
    "tests/facts/test_remotes.py", "tests/facts/test_git.py",
    "tests/facts/test_repositories.py", "tests/facts/test_bare_repositories.py",
)  # fmt: skip
MODULES: Final[dict[str, tuple[str, ...]]] = {
    **{
        f"decision.{path.stem}": _DECISION
        for path in sorted((ROOT / PACKAGE / "decision").glob("[!_]*.py"))
    },
    **{
        f"approval.{path.stem}": _GRANTS
        for path in sorted((ROOT / PACKAGE / "approval").glob("grant*.py"))
    },
    "mediation": _MEDIATION,
    "information.paths": _PATHS,
    "information.remotes": _REMOTES,
}
"""Each module with the tests that hold it, the quick ones first."""

Outcome: TypeAlias = Literal["killed", "timeout", "survived", "explained"]
_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_PASSED: Final = 0
_NO_TESTS: Final = 5
_LIMIT_SECONDS: Final = 180
_BROKEN: Final = 99
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module's source with one change."""

    module: str
    line: int
    change: str
    source: str

    @property
    def name(self) -> str:
        """What stands in `mutate_explained.txt`: no line number, which moves."""
        return f"{self.module}: {self.change}"


def path_of(module: str) -> Path:
    """Its file."""
    return ROOT / PACKAGE / f"{module.replace('.', '/')}.py"


def changes(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912, PLR0915  a table of operators
    """Each thing a node may be replaced by."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPS:
            yield ast.Compare(node.left, [_SWAPS[type(op)]()], node.comparators)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(_SWAPS[type(op)](), values)
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield ast.BoolOp(op, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=op) if type(op) in _SWAPS:
            yield ast.BinOp(node.left, _SWAPS[type(op)](), node.right)
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
            yield node.left
            yield node.right
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            for constant in (True, False):
                changed = copy.copy(node)
                changed.test = ast.Constant(constant)
                if ast.unparse(test) != "TYPE_CHECKING":
                    yield changed
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Call(func=ast.Name(id="any" | "all" as name)):
            other = ast.Name("all" if name == "any" else "any", ast.Load())
            yield ast.Call(other, node.args, node.keywords)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Set(elts=[_, _, *_]) | ast.Tuple(elts=[_, _, *_], ctx=ast.Load()):
            for at in range(len(node.elts)):
                changed = copy.copy(node)
                changed.elts = node.elts[:at] + node.elts[at + 1 :]
                yield changed
        case ast.Expr(value=ast.Call() | ast.Await()) if "_log." not in ast.unparse(node):
            yield ast.Pass()
        case ast.Raise():
            yield ast.Pass()
        case _:
            return


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Each child that may be replaced, with where it hangs. Types and words are left alone."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list", "bases", "slice", "msg"}:
            continue
        if isinstance(tree, ast.AnnAssign) and "TypeAlias" in ast.unparse(tree.annotation):
            continue
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                yield tree, field, at if isinstance(value, list) else None
                yield from places(child)


def mutants_of(module: str) -> list[Mutant]:
    """All changes of one module, each a source that compiles."""
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    found: dict[tuple[int, str], Mutant] = {}
    for parent, field, at in places(tree):
        holder = getattr(parent, field)
        node = holder if at is None else holder[at]
        for new in changes(node):
            _put(parent, field, at, ast.copy_location(new, node))
            ast.fix_missing_locations(tree)
            change = f"{_words(node)} -> {_words(new)}"
            line = getattr(node, "lineno", getattr(parent, "lineno", 0))
            found[line, change] = Mutant(module, line, change, ast.unparse(tree))
            _put(parent, field, at, node)
    return list(found.values())


def _put(parent: ast.AST, field: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[at] = node


def _words(node: ast.AST) -> str:
    shown = f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else ast.unparse(node)
    return " ".join(shown.split())[:120]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a changed source under a module's name."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Ours, or nothing."""
        if fullname != f"{PACKAGE}.{self._mutant.module}":
            return None
        return importlib.util.spec_from_file_location(
            fullname, path_of(self._mutant.module), loader=self
        )

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        code = compile(self._mutant.source, str(path_of(self._mutant.module)), "exec")
        exec(code, module.__dict__)  # noqa: S102  a line of our own, changed


def tests_of(module: str) -> list[str]:
    """Those of its tests that are there."""
    return [path for path in MODULES[module] if (ROOT / path).exists()]


def _run_tests(mutant: Mutant, parent: int) -> NoReturn:
    """Never returns: a child that came back would go on with its parent's work, and fork itself."""
    code = _BROKEN
    try:
        os.setsid()
        # A parent that is killed takes its children with it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            quiet = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(quiet, descriptor)
            sys.meta_path.insert(0, _Changed(mutant))
            options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--timeout=60"]
            code = int(pytest.main([*options, *tests_of(mutant.module)]))
    finally:
        os._exit(code)


def explained() -> frozenset[str]:
    """Changes that mean the same, each line with its reason after ` # `."""
    lines = EXPLAINED.read_text(encoding="utf-8").splitlines() if EXPLAINED.exists() else []
    return frozenset(line.rpartition(" # ")[0] for line in lines if " # " in line)


def judged(mutants: Sequence[Mutant], jobs: int) -> list[tuple[Mutant, Outcome]]:
    """Each with what became of it. One thread: a child of several may inherit a held lock."""
    results: list[tuple[Mutant, Outcome]] = []
    left, running = list(reversed(mutants)), dict[int, tuple[Mutant, float]]()
    while left or running:
        while left and len(running) < jobs:
            parent = os.getpid()
            child = os.fork()
            if child == 0:
                _run_tests(left[-1], parent)
            running[child] = left.pop(), time.monotonic() + _LIMIT_SECONDS
        time.sleep(0.02)
        for child, (mutant, end) in list(running.items()):
            outcome = _outcome(child, late=time.monotonic() > end)
            if outcome is not None:
                del running[child]
                results.append((mutant, _shown(mutant, outcome)))
    return results


def _outcome(child: int, *, late: bool) -> Outcome | None:
    if late:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "timeout"
    found, status = os.waitpid(child, os.WNOHANG)
    if not found:
        return None
    return "survived" if os.waitstatus_to_exitcode(status) in (_PASSED, _NO_TESTS) else "killed"


def _shown(mutant: Mutant, outcome: Outcome) -> Outcome:
    if outcome == "survived" and mutant.name in explained():
        outcome = "explained"
    if outcome != "killed" and mutant.change:
        sys.stdout.write(f"{outcome} {mutant.module}:{mutant.line}: {mutant.change}\n")
        sys.stdout.flush()
    return outcome


def main() -> int:
    """Draw, run, print. 1 if less than the wanted share was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--sample", type=int, default=40, help="changes of each module (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--at-least", type=int, default=95, metavar="PERCENT")
    options = parser.parse_args()
    chosen = [
        name
        for name in MODULES
        if not options.modules
        or any(name == one or name.startswith(f"{one}.") for one in options.modules)
    ]
    sys.path.insert(0, str(ROOT))
    unchanged = [Mutant(name, 0, "", path_of(name).read_text("utf-8")) for name in chosen]
    broken = [one.module for one, outcome in judged(unchanged, options.jobs) if outcome == "killed"]
    if broken:
        sys.exit(f"the tests of {', '.join(broken)} fail without any change")
    mutants: list[Mutant] = []
    for name in chosen:
        drawn = mutants_of(name)
        random.Random(f"{options.seed}{name}").shuffle(drawn)  # noqa: S311  a sample
        mutants += drawn[: options.sample or None]
    results = judged(mutants, options.jobs)
    for name in [*chosen, ""]:
        mine = [outcome for mutant, outcome in results if name in ("", mutant.module)]
        counted = [outcome for outcome in mine if outcome != "explained"]
        rate = 100 * sum(outcome != "survived" for outcome in counted) / (len(counted) or 1)
        sys.stdout.write(f"{name or 'all':32} {len(mine):5} changes  {rate:6.1f} % noticed\n")
    return 0 if rate >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
