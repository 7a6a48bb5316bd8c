"""With which key, and where, a model that reviews is reached."""

from dataclasses import dataclass, field

from ironcurtain_proxy.config.auto_confirm.reviewer_settings import ReviewerSpec
from ironcurtain_proxy.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """What a model's library is told."""

    api_key: str = field(repr=False)
    """Empty: there is none."""
    api_base: str | None
    """None: the provider's own."""


def provider_of(model_id: str) -> str:
    """The provider in `PROVIDER:MODEL`."""
    return model_id.partition(":")[0]


def model_access(spec: ReviewerSpec, settings: Settings) -> ModelAccess:
    """The reviewer's own key, else that of its provider.

    INVARIANT: a key goes to the provider that it is of, and to no other. What is said of the
    auto-approver holds for a reviewer of the same provider only.
    """
    provider, said = provider_of(spec.model_id), settings.auto_approve
    same = provider == provider_of(said.model_id)
    usual = said.api_key if same else settings.provider_keys.get(provider, "")
    return ModelAccess(
        api_key=spec.env.get("API_KEY") or usual,
        api_base=spec.api_base or (said.api_base if same else None),
    )
