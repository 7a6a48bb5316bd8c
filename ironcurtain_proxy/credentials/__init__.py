"""The files that hold credentials, and who needs them: the table of `table.txt`, read once.

It names files by patterns over the last components of a path:

    `.env`, `*.pem`      the last component; `*` stands for any part of one component
    `.aws/credentials`   the last components
    `.config/gh/**`      these components at any place, and all that lies below

All is compared in lower case: on a file system without regard to case `.ENV` is the same file.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

# --- names


TREE: Final = "/**"


class NamePatterns(Struct, frozen=True):
    """A set of patterns, sorted by the cheapest way to look for each."""

    last: frozenset[str]
    """Whole last components."""
    endings: tuple[str, ...]
    """The texts after a `*` that begins a pattern."""
    tree_endings: tuple[str, ...]
    """The same, for a directory with all that lies below."""
    trees: Mapping[str, tuple[str, ...]]
    """The trees, each from its first slash, by their last component."""
    others: re.Pattern[str] | None

    def match(self, path: str) -> bool:
        """Return whether a pattern describes a path.

        Args:
            path: absolute, or `/` and the components that are known.
        """
        text = path.lower()
        return (
            text[text.rfind("/") + 1 :] in self.last
            or text.endswith(self.endings)
            or (bool(self.trees or self.tree_endings) and self._is_in_tree(text))
            or (self.others is not None and self.others.search(text) is not None)
        )

    def _is_in_tree(self, text: str) -> bool:
        above = ""
        for part in text.split("/")[1:]:
            above = f"{above}/{part}"
            if part.endswith(self.tree_endings):
                return True
            ending_so = self.trees.get(part)
            if ending_so is not None and above.endswith(ending_so):
                return True
        return False


@lru_cache(maxsize=256)
def compiled(patterns: frozenset[str]) -> NamePatterns:
    """Return the patterns, ready to be compared. Empty matches nothing.

    Args:
        patterns: in lower case.
    """
    last, endings, tree_endings, others = set[str](), set[str](), set[str](), set[str]()
    trees: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        tree = pattern.removesuffix(TREE)
        if tree != pattern and "*" not in tree:
            name = tree.rpartition("/")[2]
            trees[name] = (*trees.get(name, ()), f"/{tree.strip('/')}")
        elif "/" not in pattern and "*" not in pattern:
            last.add(pattern)
        elif tree[:1] == "*" and not {"/", "*"} & {*tree[1:]}:
            (endings if tree == pattern else tree_endings).add(tree[1:])
        else:
            others.add(pattern)
    return NamePatterns(
        last=frozenset(last),
        endings=tuple(sorted(endings)),
        tree_endings=tuple(sorted(tree_endings)),
        trees=trees,
        others=_expression(others) if others else None,
    )


def _expression(patterns: set[str]) -> re.Pattern[str]:
    """Return one regular expression for all.

    Parts between stars are matched once, from the left.
    """
    each = [
        _escaped(tree) + r"(?:/.*)?" if (tree := one.removesuffix(TREE)) != one else _escaped(one)
        for one in sorted(patterns)
    ]
    return re.compile(rf"/(?:{'|'.join(each)})\Z", re.DOTALL)


def _escaped(pattern: str) -> str:
    return "[^/]*".join(map(re.escape, pattern.split("*")))


# --- table


ONLY_AT_HOME: Final = "~"
_FILES_ALONE: Final = "="
_XDG: Final[Mapping[str, str]] = {
    ".config/": "XDG_CONFIG_HOME",
    ".local/share/": "XDG_DATA_HOME",
    ".local/state/": "XDG_STATE_HOME",
    ".cache/": "XDG_CACHE_HOME",
}
_NO_FILES: Final = ("/dev", "/proc", "/sys")
"""`HISTFILE=/dev/null` moves a history to where nothing is kept."""
_WORD: Final = re.compile(r"[\w.~/-]{4,256}")
_IS_NAME: Final = re.compile(r"(?:^|/)\.\w|_")
_RUNTIME: Final = "containers/auth.json"
"""podman's logins, below XDG_RUNTIME_DIR."""
_KERBEROS: Final = "/tmp/krb5cc_"  # noqa: S108  compared and closed, never opened


class CredentialPlace(Struct, frozen=True, kw_only=True):
    """A file or directory with credentials in the home directory."""

    path: str
    """Relative to the home directory."""
    only_at_home: bool
    """Elsewhere a path of this name says nothing."""
    variables: tuple[str, ...]
    programs: frozenset[str]
    """The programs that need it for what they do outside the machine."""


class _Table(Struct, frozen=True):
    text: str
    names: tuple[str, ...]
    examples: tuple[str, ...]
    keys: tuple[str, ...]
    places: tuple[CredentialPlace, ...]


@cache
def _table() -> _Table:
    text = Path(__file__).with_name("table.txt").read_text("utf-8")
    sections: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            rows = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rows.append(line)
    return _Table(
        text,
        tuple([_as_pattern(one) for row in sections["names"] for one in row.split()]),
        tuple(" ".join(sections["examples"]).split()),
        tuple(" ".join(sections["keys"]).split()),
        tuple(_places(sections["places"])),
    )


def _as_pattern(name: str) -> str:
    return name[1:] if name.startswith(_FILES_ALONE) else name + TREE


def _places(rows: list[str]) -> Iterator[CredentialPlace]:
    found: dict[str, tuple[list[str], set[str]]] = {}
    for row in rows:
        path, variable, programs, *_ = (*[part for part in row.split("  ") if part], "-", "-")
        variables, needed = found.setdefault(path.strip(), ([], set()))
        variables += [] if variable.strip() == "-" else [variable.strip()]
        needed.update([] if programs.strip() == "-" else programs.split())
    for path, (variables, needed) in found.items():
        yield CredentialPlace(
            path=path.removeprefix(ONLY_AT_HOME),
            only_at_home=path.startswith(ONLY_AT_HOME),
            variables=tuple(variables),
            programs=frozenset(needed),
        )


def places() -> tuple[CredentialPlace, ...]:
    """Return the places in a home directory."""
    return _table().places


def keys() -> tuple[str, ...]:
    """Return the places that are closed to every server, whatever the policy says."""
    return _table().keys


def table_bytes() -> bytes:
    """Return the table as it is written, for what depends on all of it."""
    return _table().text.encode()


def names() -> tuple[str, ...]:
    """Return the patterns of what has such a name at any place, without those of `places`."""
    return _table().names


@cache
def examples() -> frozenset[str]:
    """Return the names that are exempt, because only examples and programs have them."""
    return frozenset(_table().examples)


def named_in(text: str) -> tuple[int, int] | None:
    """Return where a text names a file that holds credentials, or None if it names none.

    A bare word may be anything: a name counts that is hidden, or has an underscore as few have.
    """
    for found in _WORD.finditer(text):
        name = found.group().strip("~").rstrip("./-")
        if _IS_NAME.search(name) and is_credential(f"/{name.lstrip('/')}"):
            return found.span()
    return None


@cache
def patterns(home: str | None = None, workspace: str | None = None) -> frozenset[str]:
    """Return all patterns, for `names.compiled`.

    Args:
        home: the home directory, or None if places that count in it alone are left out.
        workspace: a place that contains it is left out, because the workspace is the agent's.
    """
    found = set(_table().names)
    for place in _table().places:
        if place.only_at_home and home is None:
            continue
        if home is not None and workspace is not None and _is_in(workspace, f"{home}/{place.path}"):
            continue
        path = f"{home}/{place.path}" if place.only_at_home else place.path
        found.add(f"{path.lower().strip('/')}{TREE}")
    return frozenset(found)


def is_credential(path: str, home: str | None = None, workspace: str | None = None) -> bool:
    """Return whether a path is one of a file that holds credentials, or lies in such a directory.

    Args:
        path: absolute; or `/` and a relative path, which then is looked at without its directory.
        home: the home directory, or None if it is not known.
        workspace: the agent's; a place that contains it says nothing.
    """
    if compiled(patterns(home, workspace)).match(path):
        return not compiled(examples()).match(path)
    return False


def names_needed_by(program: str) -> tuple[CredentialPlace, ...]:
    """Return the places that a program needs for what it does outside the machine."""
    return tuple([place for place in _table().places if program in place.programs])


def places_of(
    home: str, environ: Mapping[str, str]
) -> tuple[tuple[CredentialPlace | None, str], ...]:
    """Return every place with its absolute paths.

    In the home directory, and where variables move it.

    Args:
        home: the home directory.
        environ: the user's environment.
    """
    found: dict[str, CredentialPlace | None] = {}
    for place in _table().places:
        for path in (f"{home}/{place.path}", *_moved(place, environ)):
            if not _is_in(home, path):
                found.setdefault(path, place)
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        found.setdefault(f"{runtime}/{_RUNTIME}", _place_with("podman"))
    return tuple([(place, path) for path, place in found.items()])


def _place_with(program: str) -> CredentialPlace | None:
    return next((one for one in _table().places if program in one.programs), None)


def _moved(place: CredentialPlace, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the absolute paths that variables give to a place."""
    for prefix, variable in _XDG.items():
        base = environ.get(variable, "")
        if place.path.startswith(prefix) and base.startswith("/"):
            yield f"{base.rstrip('/')}/{place.path.removeprefix(prefix)}"
    for said in place.variables:
        variable, slash, rest = said.partition("/")
        for part in environ.get(variable, "").split(":"):
            if part.startswith("/") and part.strip("/") and not _is_no_file(part):
                yield f"{part.rstrip('/')}{slash}{rest}"


def _is_no_file(path: str) -> bool:
    return any(_is_in(path, top) for top in _NO_FILES)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
