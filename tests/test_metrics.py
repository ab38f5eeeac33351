"""Tests of the metrics route: readable by Prometheus, with a key where there is one, and counting."""

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from switchboard import serving
from visavis.config import RouterConfig
from visavis.engine import Request
from visavis.engine.router import Entry, RouterEngine
from visavis.engine.scripted import Fault, Reply, ScriptedEngine

KEY = "a-key-for-metrics"


def requests(**labels: str) -> float:
    return REGISTRY.get_sample_value("visavis_engine_requests_total", labels) or 0.0


async def test_prometheus_can_read_them() -> None:
    async with serving() as client:
        response = await client.get("/metrics")
        assert response.status == 200
        assert response.content_type == "text/plain"
        names = {family.name for family in text_string_to_metric_families(await response.text())}
    assert {"visavis_engine_requests", "visavis_engine_speech", "process_cpu_seconds"} <= names


async def test_they_need_the_key_that_calls_need() -> None:
    async with serving(keys=(KEY,)) as client:
        assert (await client.get("/metrics")).status == 401
        assert (await client.get("/%6detrics")).status == 401
        allowed = await client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})
        assert allowed.status == 200


async def test_a_request_that_went_to_a_fallback_is_counted_at_both_engines_with_the_reason() -> None:
    first = Entry("counted-gpu", ScriptedEngine([Reply(fault=Fault.BUSY)]), 1, 1)
    second = Entry("counted-laptop", ScriptedEngine([Reply()]), 1, 1)
    router = RouterEngine([first, second], None, RouterConfig())
    async for _ in router.respond(Request("call", ())):
        pass
    assert requests(engine="counted-gpu", outcome="passed over", reason="busy") == 1
    assert requests(engine="counted-laptop", outcome="answered", reason="fallback") == 1
