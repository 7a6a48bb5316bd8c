"""What a request names, and whether that is what a call names.

Pure: no I/O, no clock, no log. Compares structure, not text: paths by component, addresses and
identifiers whole. Nothing matches by being contained in something else, and no letter is taken for
another that looks like it.
"""

import re
from dataclasses import dataclass
from typing import Final, assert_never

from ironcurtain_proxy.auto_approver.target_call import Demand, Surroundings
from ironcurtain_proxy.auto_approver.target_message import Request, Token
from ironcurtain_proxy.auto_approver.target_words import (
    DISTINCT,
    FAMILIAR_BRANCHES,
    FAMILIAR_ENDINGS,
    FAMILIAR_FILES,
    FILE_TYPES,
    NAMING,
    NEVER_NAMES,
    PLACES,
    PREPOSITIONS,
    Operation,
)
from ironcurtain_proxy.model.path import RealPath

_REMOTE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
_FILE_NAME: Final = re.compile(r"(?!.*//)[A-Za-z0-9_][A-Za-z0-9_./+-]*", re.ASCII)
_STRICTLY_BELOW: Final = frozenset({"in", "inside", "under", "from", "of"})
_UNCLEAR: Final = re.compile(r"(^|/)\.\.?(/|$)|[*?\[\]{}$\\]")
_BARE_OBJECTS: Final[frozenset[Operation]] = frozenset({"install", "checkout"})
"""What is installed or checked out is named by a plain word."""


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that a request names, and where it stands."""

    token: Token
    after: str
    """The preposition it stands after; `""`: it is the object."""
    beside: frozenset[str]
    """The words right before and right after it."""
    is_first: bool = False
    """Whether it is the first thing that the request names."""
    literal_git: int = 0
    """Its place in a literal git command, from 1; 0: it is not in one."""

    @property
    def is_place(self) -> bool:
        """Whether it says where the object is."""
        return self.after in PLACES

    def path(self, around: Surroundings) -> RealPath | None:
        """The path it names; None: none, or one that cannot be told without looking."""
        text = self.token.text
        if self.token.kind not in {"path", "literal"} or not text.startswith(("/", "~", "./")):
            return None
        tail = text.removeprefix("./") if text.startswith("./") else text
        if _UNCLEAR.search(tail):
            return None
        if text.startswith("./"):
            root = around.workspace
        elif text == "~" or text.startswith("~/"):
            root, tail = around.home, text[1:]
        elif text.startswith("/"):
            root = RealPath(())
        else:
            return None
        return None if root is None else RealPath((*root.parts, *RealPath.from_text(tail).parts))

    def names_path(self, demand: Demand, words: list[str], around: Surroundings) -> bool:
        """Whether it is the path that the call names, or a directory that says enough."""
        path = self.path(around)
        if path is None or demand.path is None or self.after not in demand.places:
            return False
        only_below = demand.removes and demand.below and self.after in _STRICTLY_BELOW
        if path == demand.path:
            return not only_below
        if not demand.below or not demand.path.is_within(path) or around.home.is_within(path):
            # Whoever names the home directory, or all of the disk, has not named what is in it.
            return False
        name = demand.path.parts[-1]
        types = [FILE_TYPES[word] for word in words if word in FILE_TYPES]
        return all(re.search(pattern, name) for pattern in types)

    def is_relative_file(self, demand: Demand) -> bool:
        """Whether it is the bare name of a file, in a place where one may stand."""
        text = self.token.text
        if self.token.kind == "literal":
            return self.after in NAMING and demand.path is not None and "/" not in text
        if self.token.kind != "name" or not _FILE_NAME.fullmatch(text) or _UNCLEAR.search(text):
            return False
        if self.after in NAMING:
            return text.lower() not in NEVER_NAMES
        return self.after in {"", *demand.places} and (
            text in FAMILIAR_FILES or "." in text or "/" in text
        )

    def is_here(self, demand: Demand, around: Surroundings) -> bool:
        """Whether it is the path that the call names, as seen from the workspace."""
        if around.workspace is None or self.after not in demand.places:
            return False
        return relative_file(self, around.workspace, demand)

    def meets(self, demand: Demand, operation: Operation) -> bool:
        """Whether it is what the call names. Not for paths."""
        match demand.kind:
            case "remote":
                found = self._is_remote(demand)
            case "branch":
                found = self._is_branch(demand, operation)
            case "text":
                found = self._is_text(demand, operation)
            case "url":
                found = self._allowed(demand) and self._is_url(demand.text)
            case "repository":
                found = self._allowed(demand) and self._is_repository(demand.text)
            case "email":
                same = self.token.text == demand.text
                found = self._allowed(demand) and self.token.kind == "email" and same
            case "path":
                found = False
            case _:
                assert_never(demand.kind)
        return found

    def _allowed(self, demand: Demand) -> bool:
        return self.after in demand.places

    def _is_url(self, url: str) -> bool:
        if self.token.kind == "url":
            return _spelled(self.token.text) == url
        return self.token.kind == "name" and url == f"https://{self.token.text.lower()}"

    def _is_repository(self, full: str) -> bool:
        text = self.token.text.lower()
        if self.token.kind == "url":
            text = text.removeprefix("https://github.com/").removesuffix(".git")
        return text == full

    def _is_remote(self, demand: Demand) -> bool:
        if not (self._allowed(demand) or self.literal_git == 1):
            return False
        text, remote = self.token.text, demand.text
        if self.token.kind == "url" or "://" in remote or ":" in remote:
            return self.token.kind == "url" and _spelled(text) == _spelled(remote)
        if self.token.kind != "name" or not _REMOTE_NAME.fullmatch(remote):
            return False
        if text == remote:
            return remote.lower() not in NEVER_NAMES
        return text.partition("/")[0] == remote and "/" in text

    def _is_branch(self, demand: Demand, operation: Operation) -> bool:
        text, branch = self.token.text, demand.text
        if operation == "push" and self.after in {"to", "onto"} and text.endswith(f"/{branch}"):
            return text.count("/") == 1 + branch.count("/")
        if text != branch or not (self._allowed(demand) or self.literal_git > 1):
            return False
        if self.token.kind == "literal":
            return True
        named = bool({"branch", "tag"} & self.beside) or branch in FAMILIAR_BRANCHES
        introduced = named or self.literal_git > 1 or (self.is_first and operation in _BARE_OBJECTS)
        return self.token.kind == "name" and self._is_name(introduced=introduced)

    def _is_text(self, demand: Demand, operation: Operation) -> bool:
        if self.token.text != demand.text or not self._allowed(demand):
            return False
        if self.token.kind in {"literal", "number"}:
            return True
        known = bool((DISTINCT | {"package", "library"}) & self.beside)
        bare = operation in _BARE_OBJECTS and self.after == "" and self.is_first
        return self.token.kind == "name" and self._is_name(introduced=known or bare)

    def _is_name(self, *, introduced: bool) -> bool:
        """Whether an unquoted word may be taken for a name, and not for a word of the sentence."""
        text = self.token.text
        if text.lower() in NEVER_NAMES or text.startswith("-"):
            return False
        return introduced or re.search(r"[0-9_./@#-]", text) is not None


def relative_file(named: Named, directory: RealPath, demand: Demand) -> bool:
    """Whether the bare name of a file, looked for in a directory, is the path of the call."""
    path = demand.path
    if path is None or not path.parts:
        return False
    parts = RealPath.from_text(named.token.text).parts
    if path == RealPath((*directory.parts, *parts)):
        return True
    # "the README" is README.md as well.
    stem, _, ending = path.parts[-1].partition(".")
    return (
        ending in FAMILIAR_ENDINGS
        and named.token.text in FAMILIAR_FILES
        and path == RealPath((*directory.parts, path.parts[-1]))
        and stem == named.token.text
    )


def names(request: Request) -> list[Named]:
    """Everything that a request names, in its order."""
    found: list[Named] = []
    after = ""
    tokens = request.tokens
    for at, token in enumerate(tokens):
        if token.kind == "mark":
            continue
        if token.kind == "word":
            if token.text in PREPOSITIONS:
                after = token.text
            continue
        beside = frozenset(
            [
                tokens[near].text
                for near in (at - 1, at + 1)
                if 0 <= near < len(tokens) and tokens[near].kind == "word"
            ]
        )
        place = len(found) + 1 if request.literal_git else 0
        found.append(Named(token, after, beside, not found, place))
    return found


def _spelled(url: str) -> str:
    """Scheme and host in lower case, without a trailing slash: as the facts spell most URLs."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".removesuffix("/")
