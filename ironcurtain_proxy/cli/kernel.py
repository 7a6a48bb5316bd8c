"""The kernel on files alone: facts and policy, no servers, no session.

What `decide` and `explain` share. Knows the rooms that read files and facts; not how answers are
printed.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ironcurtain_proxy.config.policy.engine_file import LoadedEngine
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.facts.facts import FactReader, unresolvable
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.paths import PathReader
from ironcurtain_proxy.facts.schema import SchemaChecker
from ironcurtain_proxy.facts.spelling import Speller
from ironcurtain_proxy.model.decision import Decision, Deny
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered


@dataclass(slots=True)
class Kernel:
    """Decides calls against one set of files."""

    engine: LoadedEngine
    facts: FactReader
    remotes: GitRemotes
    schemas: SchemaChecker | None
    """None: arguments are not held to the annotated schema."""

    @classmethod
    def of(cls, engine: LoadedEngine, *, check_schemas: bool) -> "Kernel":
        """Put the parts together for a directory that was read."""
        workspace = engine.loaded.policy.workspace
        speller = Speller(
            home=str(engine.home),
            workspace=None if workspace is None else str(workspace),
            cwd=str(Path.cwd()),
            alias=engine.container_workspace_dir,
        )
        return cls(
            engine=engine,
            facts=FactReader(
                PathReader(speller, keep_unreadable=True),
                cwd=str(Path.cwd()),
                plain_urls_only=False,
            ),
            remotes=GitRemotes({**os.environ, "HOME": str(engine.home)}),
            schemas=SchemaChecker() if check_schemas else None,
        )

    def gather(self, server: str, tool: str, arguments: Arguments) -> Gathered:
        """The facts of one call."""
        loaded = self.engine.loaded
        annotation = loaded.annotations.get((server, tool))
        if annotation is None or server in loaded.policy.trusted_servers:
            return _without_facts(server, tool, arguments, annotated=annotation is not None)
        if self.schemas is not None:
            # The parser made it, so it is a dict; another object each time would be compiled anew.
            schema = cast("Json", annotation.input_schema)
            problem = self.schemas.problem(annotation, schema, arguments)
            if problem is not None:
                return unresolvable(problem)
        return self.facts.read(annotation, arguments, self.remotes)

    def decide(self, server: str, tool: str, arguments: Arguments) -> Decision:
        """The kernel's answer to one call."""
        gathered = self.gather(server, tool, arguments)
        if isinstance(gathered, Facts):
            return authorize(gathered.request, self.engine.loaded.policy)
        return Deny(gathered.ground)


def _without_facts(server: str, tool: str, arguments: Arguments, *, annotated: bool) -> Facts:
    request = AccessRequest(
        server=server,
        tool=tool,
        annotated=annotated,
        has_arguments=bool(arguments),
        arguments=(),
    )
    return Facts(request=request, arguments=arguments)
