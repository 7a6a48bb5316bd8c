"""Policy, annotations and lists joined into what the kernel is handed."""

from dataclasses import dataclass

from ironcurtain_proxy.administration.problems import Problem
from ironcurtain_proxy.administration.settings import Settings
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    """What was loaded, and what the operator should know of it."""

    policy: Policy
    annotations: Annotations
    warnings: tuple[Problem, ...] = ()

    @property
    def version(self) -> str:
        """SHA-256 over the files, hexadecimal."""
        return self.policy.version


def load_policy(settings: Settings) -> LoadedPolicy:
    """The policy that `serve` enforces, protected paths included.

    Raises:
        ProblemsError: a file cannot be used; it holds everything found.
    """
    raise NotImplementedError
