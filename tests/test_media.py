"""Which backend a process gets."""

import sys

import aiortc.rtcrtpreceiver
import pytest
from aiortc import RTCRtpReceiver, RTCRtpSender

from visavis.config import RtcConfig
from visavis.errors import ConfigError
from visavis.rtc import Media
from visavis.rtc.lean.names import NAMES, missing_names


async def test_the_installed_release_has_every_private_name() -> None:
    """Fails when aiortc or aioice move one: look at what became of it before the pins are raised."""
    assert await missing_names() == []


async def test_lean_is_the_default_and_stock_a_choice() -> None:
    async with Media(RtcConfig()) as media:
        assert media.backend == "lean"
    async with Media(RtcConfig(backend="stock")) as media:
        assert media.backend == "stock"


@pytest.mark.parametrize(
    ("owner", "name"), [(RTCRtpSender, "_run_rtp"), (RTCRtpReceiver, "_handle_disconnect")]
)
async def test_a_release_that_lacks_a_name_falls_back_with_a_warning(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert name in NAMES[owner.__name__]
    monkeypatch.delattr(owner, name)
    async with Media(RtcConfig()) as media:
        assert media.backend == "stock"
    assert f"{owner.__name__}.{name} cannot be found" in caplog.text


async def test_a_release_that_lacks_a_class_falls_back_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in [name for name in sys.modules if name.startswith("visavis.rtc.lean")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(aiortc.rtcrtpreceiver, "StreamStatistics")
    async with Media(RtcConfig()) as media:
        assert media.backend == "stock"
    assert "StreamStatistics" in caplog.text


async def test_what_is_not_open_makes_no_calls() -> None:
    media = Media(RtcConfig())
    with pytest.raises(RuntimeError, match="not been opened"):
        _ = media.backend
    await media.open()
    await media.aclose()
    await media.aclose()
    with pytest.raises(RuntimeError, match="not been opened"):
        _ = media.backend


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"opus_bitrate": 5_999}, "opus_bitrate"), ({"opus_complexity": 11}, "opus_complexity")],
)
def test_impossible_settings_are_refused(settings: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RtcConfig(**settings)
