"""A language model behind litellm; the only module that uses litellm.

litellm takes seconds to import, fetches a price list, reads a `.env` file of the working
directory unless told otherwise, retries, and does not validate replies. This module contains all
of that: litellm is imported in one function, in a thread; nothing is retried; replies are
limited in size; no redirect is followed. The questions and the meaning of answers are in
`auto_approver.intent`.
"""

import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias, cast, get_args

import anyio
import anyio.to_thread
import orjson
from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import append_line

# --- the log of questions and answers -------------------------------------------------------------
# The log of the auto-approver's questions to its model, and of the answers.
#
# For diagnosis only. Nothing depends on it: what cannot be written is not written, and the first
# time the operator is told. The file is private: the user's messages stand in it.


_log = logging.getLogger(__name__)

STEP: Final = "auto-approve"
MAX_BYTES: Final = 64 << 20
"""The most bytes of the file."""


@dataclass(slots=True)
class LlmLog:
    """Appends one JSON line an interaction."""

    path: Path
    _is_failing: bool = field(default=False, init=False)

    async def append(self, entry: Mapping[str, Json]) -> None:
        """Write one entry. Never raises but when it is cancelled."""
        try:
            line = orjson.dumps({"step": STEP, **entry}) + b"\n"
            await anyio.to_thread.run_sync(self._write, line)
        except (OSError, TypeError, ValueError) as error:
            if not self._is_failing:
                self._is_failing = True
                _log.warning("%s: the model's answers are not logged: %s", self.path, error)

    def _write(self, line: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_line(self.path, line, MAX_BYTES)


Provider: TypeAlias = Literal["anthropic", "google", "openai"]
"""The service that runs the model. `openai` with another `api_base` is any compatible server."""

DEFAULT_MODEL: Final = "anthropic:claude-haiku-4-5"

_LITELLM_NAMES: Final[Mapping[Provider, str]] = MappingProxyType(
    {"anthropic": "anthropic", "google": "gemini", "openai": "openai"}
)
_API_BASES: Final[Mapping[Provider, str | None]] = MappingProxyType(
    {
        # Set explicitly; otherwise a variable of the shell could name another host.
        "anthropic": "https://api.anthropic.com",
        "google": None,
        "openai": "https://api.openai.com/v1",
    }
)
_NO_KEY: Final = "none"
_MAX_TOKENS: Final = 300
_IMPORTING: Final = threading.Lock()
"""Held by the one thread that loads. A load that was abandoned goes on beside the next one, and two
models load at once: of two threads that import modules which import each other, Python gives one a
module that is half there."""
_LOADING_SECONDS: Final = 60.0
_LOADING_SHARE: Final = 0.75


class ModelError(IronCurtainError):
    """The model could not be asked. The message contains neither the key nor the question."""


class ModelId(Struct, frozen=True):
    """A parsed model id, `provider:model`."""

    provider: Provider
    model: str

    def __str__(self) -> str:
        """Return the id as written in a configuration."""
        return f"{self.provider}:{self.model}"


def parse_model_id(text: str) -> ModelId:
    """Parse a qualified model id.

    Raises:
        ConfigurationError: it is not `provider:model` with a provider that is known.
    """
    provider, colon, model = text.partition(":")
    known = next((name for name in get_args(Provider) if name == provider), None)
    if known is None or not colon or not model.strip() or len(text) > 200 or not text.isprintable():  # noqa: PLR2004  longer than any name
        raise ConfigurationError(
            f"{text[:80]!r} is not a model: write provider:model, with one of the providers "
            f"{', '.join(get_args(Provider))}, such as {DEFAULT_MODEL}"
        )
    return ModelId(known, model.strip())


class Completion(Struct, frozen=True, kw_only=True):
    """A model's answer."""

    text: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Model(Protocol):
    """A model that is created once and asked repeatedly."""

    async def complete(self, system: str, prompt: str) -> Completion:
        """Ask once.

        Raises:
            Exception: whatever a client library raises; the caller takes all of it for an outage.
        """

    async def warm(self) -> None:
        """Load slow libraries in a thread."""

    async def aclose(self) -> None:
        """Close its connections. Safe at any time; the model may be asked again."""


_Ask: TypeAlias = Callable[[str, str], Awaitable[object]]
_Close: TypeAlias = Callable[[], Awaitable[None]]


class _Closable(Protocol):
    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class LitellmModel:
    """A model behind litellm. Creating one costs nothing; the library is loaded on first use."""

    model_id: ModelId
    api_key: str = field(default="", repr=False)
    """The API key. Empty means the provider's default."""
    api_base: str | None = None
    answer_schema: Mapping[str, Json] = field(repr=False)
    """The JSON schema of an answer, for providers that support one."""
    _ask: _Ask | None = field(default=None, init=False, repr=False)
    _close: _Close | None = field(default=None, init=False, repr=False)
    _loading: anyio.Lock = field(default_factory=anyio.Lock, init=False, repr=False)

    async def warm(self) -> None:
        """Import litellm in a thread. Safe at any time, and repeatable."""
        await self._loaded()

    async def complete(self, system: str, prompt: str) -> Completion:
        """Ask once; no retry."""
        ask = await self._loaded()
        try:
            return _completion_of(await ask(system, prompt))
        except Exception as error:
            if self.api_key and self.api_key in str(error):
                # Providers repeat a refused key in their message, which would end up in a log.
                raise ModelError(f"{type(error).__name__}, for the API key") from None
            raise

    async def aclose(self) -> None:
        """Close its connections; the next question opens new ones."""
        async with self._loading:
            close, self._ask, self._close = self._close, None, None
        if close is not None:
            await close()

    async def _loaded(self) -> _Ask:
        async with self._loading:
            if self._ask is not None:
                return self._ask
            # Abandoned instead of awaited when the deadline passes: the import continues, and the
            # next question finds it complete.
            ask, close = await anyio.to_thread.run_sync(self._load_alone, abandon_on_cancel=True)
            self._ask, self._close = ask, close
            return ask

    def _load_alone(self) -> tuple[_Ask, _Close]:
        with _IMPORTING:
            return self._load()

    def _load(self) -> tuple[_Ask, _Close]:
        """Import litellm and prepare the client. Runs in a thread, takes seconds."""
        # Before the import: no price list from the network, and no `.env` of a directory that the
        # agent can write to, which could redirect requests and keys.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        os.environ["LITELLM_MODE"] = "PRODUCTION"
        # Garbage collection over two thousand imported modules frees nothing and takes a fifth of
        # the time, with the import and with each later collection.
        gc.disable()
        try:
            import litellm  # slow, and only where the auto-approver is on
        except BaseException:
            # Python keeps the submodules that were whole, and a later import of the rest fails by
            # them: what failed once for want of memory or descriptors would fail for ever.
            for name in [one for one in sys.modules if one.startswith("litellm.")]:
                del sys.modules[name]
            raise
        finally:
            gc.freeze()
            gc.enable()
        # Its warnings are about its own types, not about anything that an operator can change.
        warnings.filterwarnings("ignore", module=r"(litellm|pydantic)\b")
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)
        provider = self.model_id.provider
        base = self.api_base or _API_BASES[provider]
        # A server of the operator may need no key; it must not be sent one from the shell.
        key = self.api_key or (_NO_KEY if self.api_base else None)
        client = _client(provider, key, base)
        settings: dict[str, object] = {
            "model": f"{_LITELLM_NAMES[provider]}/{self.model_id.model}",
            "api_key": key,
            "api_base": base,
            "client": client,
            "max_retries": 0,
            "num_retries": 0,
            "max_tokens": _MAX_TOKENS,
            "temperature": 0,
            "drop_params": True,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "decision",
                    "strict": True,
                    "schema": dict(self.answer_schema),
                },
            },
        }
        _import_the_rest(client, partial(litellm.completion, **settings))
        acompletion = cast("Callable[..., Awaitable[object]]", litellm.acompletion)

        async def ask(system: str, prompt: str) -> object:
            messages = [
                {"role": "system", "content": system},
                {"role": "user", "content": prompt},
            ]
            return await acompletion(messages=messages, **settings)

        return ask, client.close


def _client(provider: Provider, api_key: str | None, base: str | None) -> _Closable:
    """Return an HTTP client in the form that litellm expects for a provider."""
    from ironcurtain_proxy.llm.http import CappedTransport, plain_client  # noqa: PLC0415  see `_load`

    if provider == "openai":
        from openai import AsyncOpenAI  # noqa: PLC0415  comes with litellm

        # From version 3 on its type is of httpx2; it takes clients of both libraries.
        client: _Closable = AsyncOpenAI(
            api_key=api_key, base_url=base, max_retries=0, http_client=plain_client()
        )
        return client
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    handler: _Closable = AsyncHTTPHandler(transport=CappedTransport(), follow_redirects=False)
    return handler


def _import_the_rest(client: object, completion: Callable[..., object]) -> None:
    """Import in this thread what the libraries would import with the first question.

    That takes half a second on an idle machine and twenty on a loaded one, during which the
    event loop would stop and the model's deadline would run. A question with a given answer goes
    the same way, and reaches no host. It is optional: what it does not import, the first question
    does.
    """
    with suppress(Exception):
        completion(messages=[{"role": "user", "content": ""}], mock_response="{}")
    # The openai client imports all its resources when this one is named.
    getattr(getattr(client, "chat", None), "completions", None)


def _completion_of(response: object) -> Completion:
    """Extract text and usage from a reply; an unknown shape has no text."""
    choices = getattr(response, "choices", None)
    first = choices[0] if isinstance(choices, list) and choices else None
    text = getattr(getattr(first, "message", None), "content", None)
    finished = getattr(first, "finish_reason", None)
    usage = getattr(response, "usage", None)
    return Completion(
        # A truncated answer is no answer, even where it parses.
        text=text if isinstance(text, str) and finished in {"stop", "tool_calls", None} else None,
        input_tokens=_count(getattr(usage, "prompt_tokens", None)),
        output_tokens=_count(getattr(usage, "completion_tokens", None)),
    )


async def warm_within(model: Model, seconds: float) -> None:
    """Load a model's library within a time of its own, which does not count as the model's.

    So much of the `seconds` that are left for a question is taken at most that somebody else can
    still answer it. What fails here fails again when the model is asked, and is reported there.
    """
    with anyio.move_on_after(min(_LOADING_SECONDS, max(seconds, 0.0) * _LOADING_SHARE)):
        with suppress(Exception):
            await model.warm()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def usage_of(completion: Completion) -> dict[str, Json]:
    """Return token usage as it stands in the log."""
    return {"inputTokens": completion.input_tokens, "outputTokens": completion.output_tokens}
