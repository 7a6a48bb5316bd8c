"""Names of files, as patterns over the last components of a path.

    `.env`, `*.pem`      the last component; `*` stands for any part of one component
    `.aws/credentials`   the last components
    `.config/gh/**`      these components at any place, and all that lies below

All is compared in lower case: on a file system without regard to case `.ENV` is the same file.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

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
        """Whether a pattern describes a path.

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
    """The patterns, ready to be compared. Empty matches nothing.

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
    """One regular expression for all. Parts between stars are matched once, from the left."""
    each = [
        _escaped(tree) + r"(?:/.*)?" if (tree := one.removesuffix(TREE)) != one else _escaped(one)
        for one in sorted(patterns)
    ]
    return re.compile(rf"/(?:{'|'.join(each)})\Z", re.DOTALL)


def _escaped(pattern: str) -> str:
    return "[^/]*".join(map(re.escape, pattern.split("*")))
