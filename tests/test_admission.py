import pytest

from visavis.admission import RateLimit


def test_an_address_has_a_burst_and_then_its_rate() -> None:
    limit = RateLimit(per_s=2, burst=3)
    assert [limit.take("192.0.2.1", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.take("192.0.2.2", 0.0) == 0
    assert limit.take("192.0.2.1", 0.4) == pytest.approx(0.1)
    assert limit.take("192.0.2.1", 0.5) == 0
    assert [limit.take("192.0.2.1", 100.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_subscribers_ipv6_network_counts_as_one_and_mapped_ipv4_as_ipv4() -> None:
    limit = RateLimit(per_s=1, burst=1)
    assert limit.take("2001:db8:0:1::1", 0.0) == 0
    assert limit.take("2001:db8:0:1:ffff::2", 0.0) > 0
    assert limit.take("2001:db8:0:2::1", 0.0) == 0
    assert limit.take("::ffff:192.0.2.1", 0.0) == 0
    assert limit.take("192.0.2.1", 0.0) > 0


def test_the_table_of_addresses_is_bounded() -> None:
    limit = RateLimit(per_s=1, burst=1, max_peers=10)
    for number in range(100):
        limit.take(f"192.0.2.{number}", 0.0)
    assert len(limit) == 10
    assert limit.take("192.0.2.99", 0.0) > 0
    assert limit.take("192.0.2.0", 0.0) == 0
