"""Whether the reviewers of the auto-confirm engine could be asked. Not a command itself."""

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from ironcurtain_proxy.cli.doctor_checks import Check
from ironcurtain_proxy.config.auto_confirm.model_access import model_access, provider_of
from ironcurtain_proxy.config.auto_confirm.reviewer_settings import ReviewerSpec
from ironcurtain_proxy.config.review_settings import PROVIDER_KEYS
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.token_file import read_token

_MAKE_TOKEN: Final = "(umask 077; openssl rand -hex 32 > FILE)"  # noqa: S105  a command


def reviewers(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    """One check for each reviewer that is more than a person's mailbox."""
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return
    for spec in config.reviewers:
        name = f"reviewer {spec.name}"
        match spec.kind:
            case "human":
                continue
            case "process":
                yield _process(name, spec, environ)
            case "session":
                yield _session(name, spec)
            case "model":
                yield _model(name, spec, settings)
            case _:
                assert_never(spec.kind)


def _process(name: str, spec: ReviewerSpec, environ: Mapping[str, str]) -> Check:
    path = {**environ, **spec.env}.get("PATH", os.defpath)
    found = shutil.which(spec.command[0], path=path)
    if found is None:
        remedy = "install it, or give its full path as the reviewer's command"
        return Check(name, "fail", f"{spec.command[0]} not found", remedy)
    return Check(name, "ok", found)


def _session(name: str, spec: ReviewerSpec) -> Check:
    if spec.token_file is None:
        return Check(name, "fail", "no token file", _MAKE_TOKEN)
    try:
        read_token(spec.token_file)
    except ConfigurationError as error:
        return Check(name, "fail", str(error), _MAKE_TOKEN)
    return Check(name, "ok", str(spec.mailbox))


def _model(name: str, spec: ReviewerSpec, settings: Settings) -> Check:
    provider, access = provider_of(spec.model_id), model_access(spec, settings)
    # A model on this machine may ask for none.
    if access.api_key or access.api_base:
        return Check(name, "ok", spec.model_id)
    remedy = f"write {PROVIDER_KEYS.get(provider, 'API_KEY')!r} into the configuration"
    return Check(name, "fail", f"no API key for {provider}", remedy)
