"""The call page and a TURN relay that the server tells of: real server, real coturn, real browser."""

from dataclasses import replace
from pathlib import Path

import aioice.ice
import pytest
from cdp import INVENTED_DEVICES, chromium

from loopback.kit import running_server, until
from loopback.relay import relaying
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine.scripted import ScriptedEngine

pytestmark = [pytest.mark.browser, pytest.mark.loopback, pytest.mark.coturn]

KEY = "key-of-a-friend"
ADDRESSES = aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=False)
RELAYED_AND_LATE = """(() => {
  const set = RTCPeerConnection.prototype.setConfiguration;
  RTCPeerConnection.prototype.setConfiguration = function (configuration) {
    set.call(this, { ...configuration, iceTransportPolicy: "relay" });
  };
  Object.defineProperty(RTCPeerConnection.prototype, "iceGatheringState", { get: () => "complete" });
})()"""
"Only the relay's candidates, and none is waited for before the offer is sent."


@pytest.mark.skipif(not ADDRESSES, reason="browsers relay nothing over loopback alone")
async def test_the_page_calls_through_the_relay_that_the_server_tells_of(tmp_path: Path) -> None:
    """Its candidates are found after the offer was sent: they reach the server by PATCH."""
    address = ADDRESSES[0]
    async with relaying(tmp_path, address, host=address) as relay:
        rtc = replace(RtcConfig(), caller_ice_servers=(relay.ice_server("udp"),), connect_s=15.0)
        config = Config(server=ServerConfig(keys=(KEY,)), rtc=rtc)
        async with running_server(config, ScriptedEngine()) as server, chromium(INVENTED_DEVICES) as page:
            await page.look(1280, 800)
            await page.go(server.url)
            await page.evaluate(f"sessionStorage.setItem('visavis.key', '{KEY}')")
            await page.evaluate(RELAYED_AND_LATE)
            await page.click("#start")
            await page.wait_for("visavis.phase === 'live'")
            (session,) = server.sessions
            await until(lambda: session._peer.stats().packets_received > 20, "sound")
            ice = session._peer._link.connection.getTransceivers()[0].receiver.transport.transport._connection
            assert "a=candidate" not in session._peer._offer.sdp
            assert {candidate.type for candidate in ice.remote_candidates} >= {"relay"}
            assert relay.said("ALLOCATE processed, success")
            assert page.errors == []
