"""Hours of the day in which the engine is more careful."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.errors import ConfigurationError, KernelError

NightAction: TypeAlias = Literal["escalate", "hold"]
"""The action at night for calls that nothing approved."""

_LAST_HOUR: Final = 23


@dataclass(frozen=True, slots=True, kw_only=True)
class NightMode:
    """The hours in which a reviewer decides instead of the engine's default."""

    enabled: bool = True
    start_hour: int = 21
    """0 to 23, inclusive."""
    end_hour: int = 6
    """0 to 23, exclusive. Before `start_hour`: the night goes over midnight. Equal: all day."""
    action: NightAction = "escalate"

    def __post_init__(self) -> None:
        for key, hour in (("start_hour", self.start_hour), ("end_hour", self.end_hour)):
            if not 0 <= hour <= _LAST_HOUR:
                raise ConfigurationError(
                    f"auto_confirm.night_mode.{key} is not an hour from 0 to 23"
                )

    def is_on(self, moment: datetime) -> bool:
        """Whether it is night.

        Args:
            moment: aware, in the operator's own time zone.

        Raises:
            KernelError: the moment has no time zone.
        """
        if moment.utcoffset() is None:
            raise KernelError("the engine was handed a time without a zone")
        if not self.enabled:
            return False
        if self.start_hour < self.end_hour:
            return self.start_hour <= moment.hour < self.end_hour
        return moment.hour >= self.start_hour or moment.hour < self.end_hour
