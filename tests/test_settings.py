"""Settings come from a file, the environment and flags, and every mistake is named."""

import logging
from pathlib import Path

import pytest

from visavis.config import Config, IceServer, TurnDetection
from visavis.errors import ConfigError
from visavis.settings import leaves, load, variables


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "visavis.toml"
    path.write_text(text)
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert load(None, {}) == Config()


def test_a_file_sets_nested_tables_lists_and_paths(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            """
            [server]
            port = 9000
            keys = ["a", "b"]
            max_call_s = 60
            [rtc]
            ice_servers = [{ urls = ["turn:turn.example"], username = "u", credential = "c" }]
            advertise = ["203.0.113.5", "2001:db8::5"]
            [conversation.session]
            output_modalities = ["text"]
            temperature = 0.5
            turn_detection = { silence_duration_ms = 700 }
            [trace]
            dir = "~/traces"
            """,
        ),
        {},
    )
    assert (config.server.port, config.server.keys) == (9000, ("a", "b"))
    assert config.server.max_call_s == 60.0
    assert isinstance(config.server.max_call_s, float)
    assert config.rtc.ice_servers == (IceServer(urls=("turn:turn.example",), username="u", credential="c"),)
    assert config.rtc.advertise == ("203.0.113.5", "2001:db8::5")
    assert config.conversation.session.output_modalities == ("text",)
    assert config.conversation.session.turn_detection == TurnDetection(silence_duration_ms=700)
    assert config.trace.dir == Path.home() / "traces"


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '[server]\nhost = "::1"\nport = 1\nmax_calls = 1')
    environ = {"VISAVIS_SERVER_PORT": "2", "VISAVIS_SERVER_MAX_CALLS": "2"}
    server = load(path, environ, {"server.port": 3}).server
    assert (server.host, server.port, server.max_calls) == ("::1", 3, 2)


def test_the_plain_names_work_and_the_prefixed_ones_win() -> None:
    environ = {"HOST": "127.0.0.2", "PORT": "81"}
    assert load(None, environ).server.host == "127.0.0.2"
    assert load(None, environ | {"VISAVIS_SERVER_PORT": "82"}).server.port == 82
    assert load(None, {"HOST": "", "PORT": ""}) == Config()


@pytest.mark.parametrize(
    ("variable", "text", "wanted"),
    [
        ("VISAVIS_SERVER_MAX_CALL_S", "12.5", 12.5),
        ("VISAVIS_SERVER_KEYS", "a, b,", ("a", "b")),
        ("VISAVIS_SERVER_KEYS", "", ()),
        ("VISAVIS_SERVER_KEYS", '["a,b"]', ("a,b",)),
        ("VISAVIS_CONVERSATION_SESSION_TRANSCRIBE", "No", False),
        ("VISAVIS_CONVERSATION_SESSION_TRANSCRIBE", "1", True),
        ("VISAVIS_CONVERSATION_SESSION_OUTPUT_MODALITIES", "text,audio", ("text", "audio")),
        ("VISAVIS_CONVERSATION_SESSION_TURN_DETECTION", "none", None),
        ("VISAVIS_CONVERSATION_SESSION_MAX_OUTPUT_TOKENS", "", None),
        ("VISAVIS_ENGINE_NAME", "vllm", "vllm"),
        ("VISAVIS_LOCAL_CACHE_DIR", "/models", Path("/models")),
        ("VISAVIS_RTC_ICE_SERVERS", '[{urls = ["stun:s.example"]}]', (IceServer(urls=("stun:s.example",)),)),
    ],
)
def test_the_environment_is_text_of_every_type(variable: str, text: str, wanted: object) -> None:
    value: object = load(None, {variable: text})
    for name in variables()[variable].split("."):
        value = getattr(value, name)
    assert value == wanted


def test_a_setting_within_a_table_wins_over_the_word_for_the_table() -> None:
    name = "VISAVIS_CONVERSATION_SESSION_TURN_DETECTION"
    session = load(None, {name: "none", f"{name}_THRESHOLD": "0.7"}).conversation.session
    assert session.turn_detection == TurnDetection(threshold=0.7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sever]\nport = 1", r"no setting sever; did you mean server\?"),
        ("[server]\nprot = 1", r"no setting server\.prot; did you mean server\.port\?"),
        ("port = 1", r"no setting port; did you mean server\.port\?"),
        ("[trace]\nxyzzy = 1", r"no setting trace\.xyzzy; there are dir"),
        ('[server]\nport = "80"', r'server\.port must be a whole number, not "80" \(from .*visavis\.toml\)'),
        ("[server]\nport = true", r"server\.port must be a whole number, not true"),
        ("[server]\nport = 1.5", r"server\.port must be a whole number, not 1\.5"),
        ("[server]\nport = 70000", r"server\.port must be a port up to 65535, not 70000"),
        ("[server]\nmax_calls = -1", r"server\.max_calls must be a whole number from 0 on, not -1"),
        ("[server]\nmax_call_s = nan", r"server\.max_call_s must be a number from 0 on"),
        ("[server]\nhost = 1", r"server\.host must be a text, not 1"),
        ("[server]\norigins = 'a'", r'server\.origins must be a list, not "a"'),
        ("[server]\norigins = [1]", r"server\.origins\[0\] must be a text, not 1"),
        ("server = 1", r"server must be a table \[server\], not 1"),
        ("[server.port]\na = 1", r"server\.port is one setting and no table"),
        ("[deploy]\nport = 70000", r"deploy\.port must be a port up to 65535"),
        ("[conversation.camera]\nfps = 0", r"conversation\.camera\.fps"),
        ("[conversation.ahead]\nclip_s = 0.3", r"conversation\.ahead\.clip_s"),
        ("[engine.talker]\nslowest_chars_per_s = 0", r"engine\.talker\.slowest_chars_per_s"),
        ("[trace]\ndir = 1", r"trace\.dir must be a path, not 1"),
        (
            "[engine]\nname = 'vlm'",
            r'engine\.name must be one of local, vllm, dashscope, scripted, not "vlm"',
        ),
        ("[engine]\nname = ['vllm']", r"engine\.name must be one of local, vllm, dashscope, scripted"),
        ("[conversation.session]\ntranscribe = 1", r"session\.transcribe must be true or false, not 1"),
        ("[conversation.session]\nturn_detection = 1", r'turn_detection\] or "none", not 1'),
        ("[rtc]\nice_servers = ['stun:a']", r"rtc\.ice_servers\[0\] must be a table"),
        ("[rtc]\nice_servers = [{username = 'a'}]", r"rtc\.ice_servers\[0\] lacks urls"),
        ("[rtc]\nice_servers = [{url = 'a'}]", r"rtc\.ice_servers\[0\]\.url; did you mean .*\[0\]\.urls\?"),
        (
            "[rtc]\nice_servers = [{urls = ['turn:a'], secret = 's', username = 'u'}]",
            r"a secret stands in place of username and credential",
        ),
        ("[rtc]\nudp_port = 70000", r"rtc\.udp_port must be a port up to 65535"),
        ("[rtc]\nadvertise = ['call.example']", r"rtc\.advertise: 'call\.example' is .* 203\.0\.113\.5"),
        ("[rtc]\nadvertise = ['192.0.2.1:5']", r"rtc\.advertise: '192\.0\.2\.1:5' .* without port"),
        ("[rtc]\nadvertise = ['[2001:db8::1]']", r"rtc\.advertise: .* or brackets"),
        ("[rtc]\nadvertise = ['0.0.0.0']", r"rtc\.advertise: 0\.0\.0\.0 is no address that callers could"),
        ("[rtc]\nudp_hosts = ['fe80::1%eth0']", r"rtc\.udp_hosts: fe80::1%eth0 is no address that callers"),
        ("[server", r"is not TOML: Expected ']'"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text), {})


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("PORT", "eighty", r'server\.port must be a whole number, not "eighty" \(from PORT\)'),
        ("VISAVIS_SERVER_PRT", "1", r"no setting VISAVIS_SERVER_PRT; did you mean VISAVIS_SERVER_PORT\?"),
        ("VISAVIS_TRACE_XYZZY_PLUGH_AND_SO_ON", "1", r"no setting VISAVIS_TRACE_XYZZY_PLUGH_AND_SO_ON\."),
        ("VISAVIS_SERVER_ORIGINS", "[1", "must be a list with commas, or one as in TOML"),
        ("VISAVIS_CONVERSATION_SESSION_TRANSCRIBE", "maybe", "must be true or false"),
    ],
)
def test_a_mistake_in_the_environment_is_named(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(None, {variable: text})


def test_variables_that_are_no_settings_are_left_alone() -> None:
    assert load(None, {"VISAVIS_OFFLINE": "1", "VISAVIS_KEY": "x", "HOME": "/root"}) == Config()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read: No such file"):
        load(tmp_path / "absent.toml", {})


@pytest.mark.parametrize(
    "text",
    [
        "[server]\nkeys = 'hunter2'",
        "[server]\nkeys = [['hunter2']]",
        "[engine]\napi_key = ['hunter2']",
        "[local]\nllm_api_key = ['hunter2']",
        "[rtc]\nice_servers = [{urls = ['a'], credential = ['hunter2']}]",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError, match="must be") as caught:
        load(write(tmp_path, text), {})
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or error.__context__
    assert "hunter2" not in caplog.text


def test_the_repr_of_the_settings_shows_no_secret() -> None:
    environ = {
        "VISAVIS_SERVER_KEYS": "hunter2",
        "VISAVIS_ENGINE_API_KEY": "hunter2",
        "VISAVIS_LOCAL_LLM_API_KEY": "hunter2",
        "VISAVIS_RTC_ICE_SERVERS": "[{urls = ['turn:a'], credential = 'hunter2'}]",
    }
    config = load(None, environ)
    assert config.server.keys == ("hunter2",)
    assert "hunter2" not in repr(config)


def test_what_sounds_like_a_secret_is_kept_out_of_reprs() -> None:
    telling = {"key", "keys", "credential", "password", "secret", "token", "redis"}  # whose URL has one
    for cls in (Config, IceServer):
        for dotted, field in leaves(cls):
            assert (field.name.split("_")[-1] in telling) is not field.repr, dotted


def test_every_default_can_be_written_down() -> None:
    for dotted, field in leaves(Config):
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            load(None, {}, {dotted: field.default})
    assert load(None, {}, {"conversation.playout.duck_db": -6.0}).conversation.playout.duck_db == -6.0


def test_every_setting_has_a_variable_of_its_own() -> None:
    names = variables()
    assert len(names) == len({dotted for dotted, _ in leaves(Config)})
    assert names["VISAVIS_CONVERSATION_SESSION_TURN_DETECTION_THRESHOLD"].endswith("turn_detection.threshold")
