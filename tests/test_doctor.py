"""`visavis doctor` on how media reaches the server."""

from dataclasses import replace

import pytest

from visavis import doctor
from visavis.config import Config, RtcConfig
from visavis.doctor import media_finding

CONTAINER = ("172.17.0.2", "fd00::2")


def with_rtc(**settings: object) -> Config:
    return Config(rtc=RtcConfig(**settings))  # type: ignore[arg-type]


def test_the_port_and_the_addresses_are_named() -> None:
    finding = media_finding(with_rtc(udp_port=40_000), ("192.0.2.2", "2001:db8::2"), contained=False)
    assert finding.seen == "UDP port 40000 on 192.0.2.2, 2001:db8::2"
    assert finding.fix is None
    assert media_finding(with_rtc(), ("192.0.2.2",), contained=False).seen.startswith("any free UDP port on")


def test_workers_have_ports_for_a_rolling_restart() -> None:
    config = with_rtc(udp_port=40_000)
    config = replace(config, server=replace(config.server, workers=3))
    assert "UDP ports 40000 to 40005" in media_finding(config, ("192.0.2.2",), contained=False).seen
    config = replace(config, rtc=RtcConfig())
    assert "one for each worker" in media_finding(config, ("192.0.2.2",), contained=False).seen


def test_a_container_that_offers_only_its_own_addresses_is_told_to_advertise_the_hosts() -> None:
    finding = media_finding(with_rtc(udp_port=8080), CONTAINER, contained=True)
    assert finding.fix is not None
    assert "rtc.advertise" in finding.fix
    advertised = media_finding(with_rtc(udp_port=8080, advertise=("203.0.113.5",)), CONTAINER, contained=True)
    assert (advertised.fix, advertised.seen.endswith("offered as 203.0.113.5")) == (None, True)


@pytest.mark.parametrize(
    "hosts", [("192.0.2.2", "172.17.0.1"), ("10.0.0.5",), ("127.0.0.1",), ("2001:db8::2",)]
)
def test_a_container_on_its_hosts_network_is_well(hosts: tuple[str, ...]) -> None:
    assert media_finding(with_rtc(), hosts, contained=True).fix is None


def test_a_machine_in_such_a_network_is_no_container() -> None:
    assert media_finding(with_rtc(), ("172.31.0.9",), contained=False).fix is None


async def test_the_doctor_opens_the_port_and_gives_it_back() -> None:
    config = with_rtc(udp_hosts=("127.0.0.1",))
    for _ in range(2):
        assert (await doctor._media(config)).seen == "any free UDP port on 127.0.0.1"
    assert "stock" in (await doctor._media(with_rtc(backend="stock"))).seen
