"""The API key and endpoint of a model that reviews."""

from dataclasses import dataclass, field

from ironcurtain_proxy.config.auto_confirm.reviewer_settings import ReviewerSpec
from ironcurtain_proxy.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The access data handed to a model's library."""

    api_key: str = field(repr=False)
    """The API key; empty: there is none."""
    api_base: str | None
    """The endpoint; None: the provider's default."""


def provider_of(model_id: str) -> str:
    """The provider in `PROVIDER:MODEL`."""
    return model_id.partition(":")[0]


def model_access(spec: ReviewerSpec, settings: Settings) -> ModelAccess:
    """The reviewer's own key, else that of its provider.

    INVARIANT: a key is sent only to the provider that it belongs to. The key and endpoint of the
    LLM approver are used only by reviewers of the same provider.
    """
    provider, said = provider_of(spec.model_id), settings.auto_approve
    same = provider == provider_of(said.model_id)
    usual = said.api_key if same else settings.provider_keys.get(provider, "")
    return ModelAccess(
        api_key=spec.env.get("API_KEY") or usual,
        api_base=spec.api_base or (said.api_base if same else None),
    )
