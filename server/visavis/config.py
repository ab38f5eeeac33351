"""Settings: frozen dataclasses, read once from TOML, environment and flags.

Each default is here and nowhere else, with its reason beside it. A field that is no part of the repr is
a secret: no error and no log shows its value.
"""

import ipaddress
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from .errors import ConfigError
from .ids import NODE

SoundFormat = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
"Of sound in events: 16-bit PCM of 24 kHz, little endian; G.711 of 8 kHz, µ-law or A-law. All mono."

MAX_WORKERS = 64
"More cores than any one machine's network would carry calls for."


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Who tells that the caller's turn is over, and when; None in its place is push-to-talk."""

    type: Literal["semantic_vad", "server_vad"] = "semantic_vad"
    "After what was said sounds finished, sooner or later as it does; or after a fixed silence."
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    "Of semantic_vad, how soon: auto is medium."
    threshold: float = 0.5
    "Probability of speech from which a block counts as voiced (Silero's own recommendation)."
    prefix_padding_ms: int = 300
    "Audio kept from before the onset: soft consonants precede the detection."
    silence_duration_ms: int = 500
    "Of server_vad; of semantic_vad where nothing is known but silence. Below 350 readers are cut at commas."
    create_response: bool = True
    interrupt_response: bool = True
    min_interruption_ms: int | None = None
    "Speech that cuts an answer off, its length alone; None weighs length, loudness and words (`overlap`)."
    idle_timeout_ms: int | None = None
    "Silence after an answer, upon which the engine is asked to go on; None leaves the caller in peace."

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"turn_detection.threshold is a probability, 0 to 1, not {self.threshold:g}.")
        if self.min_interruption_ms is not None and self.min_interruption_ms < 20:
            raise ConfigError("turn_detection.min_interruption_ms must be 20 or more, or none.")
        if self.idle_timeout_ms is not None and self.idle_timeout_ms < 1_000:
            raise ConfigError("turn_detection.idle_timeout_ms must be 1000 or more, or none.")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    "Letters, digits, underscores and hyphens, 64 at most."
    description: str = ""
    "What it is for, in words for the model."
    parameters: str = "{}"
    "JSON Schema of the arguments, an object, as JSON."

    def __post_init__(self) -> None:
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name) is None:
            raise ConfigError(
                f"{self.name!r} names no function: use up to 64 letters, digits, underscores and hyphens."
            )
        try:
            schema = json.loads(self.parameters)
        except ValueError as error:
            raise ConfigError(f"The parameters of the function {self.name} are no JSON: {error}.") from error
        if not isinstance(schema, dict):
            raise ConfigError(f"The parameters of the function {self.name} must be a JSON object.")


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether functions are called: as the model likes, never, one at least, or the one named."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None
    "Of `function`."


AUTO = ToolChoice()


@dataclass(frozen=True, slots=True)
class Transcription:
    """What a client says of how speech is written down. It is told back; what writes is the server's."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """What is left out of a conversation that has become too long for the engine."""

    type: Literal["auto", "disabled", "retention_ratio"] = "auto"
    "Disabled leaves nothing out: an engine refuses what is too long then."
    retention_ratio: float = 0.6
    "Share of the budget that is left when old items go: the engine's prefix cache then lasts many turns."
    post_instructions: int | None = None
    "Tokens that may be sent after the instructions; None is what the engine's context has room for."

    def __post_init__(self) -> None:
        if not 0 <= self.retention_ratio <= 1:
            raise ConfigError(f"truncation.retention_ratio is from 0 to 1, not {self.retention_ratio:g}.")


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a client may change during a call (`session.update`)."""

    instructions: str = (
        "You are Visavis, a friendly assistant on a live video call. "
        "Answer in one or two short, natural spoken sentences, in the language of the user. "
        "No lists, markdown, code or emojis. Answer the question rather than describe the picture. "
        "If you do not know something or cannot see it, say so, and ask when unsure."
    )
    "The advice of Qwen3-Omni's authors for audio-visual talk."
    output_modalities: tuple[Literal["audio", "text"], ...] = ("audio",)
    voice: str | None = None
    "None leaves the choice to the engine."
    input_format: SoundFormat = "audio/pcm"
    "Of sound in events; what a microphone sends has its own."
    output_format: SoundFormat = "audio/pcm"
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    "None is push-to-talk: the client commits."
    transcribe: bool = True
    transcription: Transcription = field(default_factory=Transcription)
    noise_reduction: Literal["none", "near_field", "far_field"] = "none"
    "Told back, and no more: browsers clean their microphones, and the ear is made for rooms with noise."
    truncation: Truncation = field(default_factory=Truncation)
    camera_fps: float | None = None
    "Pictures a second that are looked at, at most; 0 is none, None leaves it to the server."
    temperature: float | None = None
    max_output_tokens: int | None = None
    tools: tuple[Tool, ...] = ()
    "Functions that the client runs when the model calls them."
    tool_choice: ToolChoice = AUTO


@dataclass(frozen=True, slots=True)
class VadConfig:
    """How a block's probability of speech is found."""

    gate_mode: int = 1
    "Of webrtcvad, 0 to 3: 2 and 3 miss quiet speech (peaks at -40 dBFS), 0 stays open in hum and hiss."
    hangover_ms: int = 300
    "How long the gate stays open after the last sign of speech: Silero then hears a phrase as a whole."
    prime_ms: int = 128
    "Audio from before the gate opened that Silero hears first; more changes no onset, less makes them late."


@dataclass(frozen=True, slots=True)
class EarConfig:
    """When a word's sound has ended, told by its level between 120 and 8000 Hz."""

    margin_db: float = 3.0
    "Above the room's level that is silence still: rooms vary by 1 dB from block to block, speech by 30."
    deep_db: float = 34.0
    "So far below the voice's loud syllables is silence in any room: weak last ones are 25 to 30 below."
    least_db: float = 6.0
    "Nothing less far below the voice is silence: in a din only Silero can tell."
    insist: float = 0.95
    "Silero's probability that stands against the level,"
    insist_ms: int = 140
    "after so long: by then it has noticed most ends itself, and hears speech that the noise covers."
    silence: float = 0.05
    "The most that the probability of speech is in such a silence."
    voiced: float = 0.5
    "Probability from which words begin whose melody counts,"
    voiced_still: float = 0.35
    "and from which they go on: as turns do by default."


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """How evidence for the end of a turn becomes the silence that is waited for (`endpoint.py`)."""

    even_ms: int = 300
    "Where what is known speaks as much for the end as against it; more cuts fewer callers and answers later."
    steepness: float = 0.7
    "Of the wait's logarithm in log-odds: at 4 to 1 for the end it is 114 ms, at 4 to 1 against it 790 ms."
    shortest_ms: int = 180
    "However sure: weak last consonants are missed by up to 60 ms, and many inner pauses are as short."
    longest_ms: int = 1_200
    "However unsure: who trails off is answered before asking whether anyone is there."
    low_pace: float = 1.5
    "Of eagerness low, by which every wait is multiplied,"
    high_pace: float = 0.7
    "and of high."
    verdict_weight: float = 0.8
    "How far a smart-turn model's log-odds count: it is seldom as sure as it is right."
    most_units: float = 4.0
    "The most that finality or a verdict counts: neither is right more than 50 times in 51."
    unfinished_text: float = -4.0
    "Log-odds of words that nobody ends on: and, because, the."
    open_text: float = -1.5
    "Of a comma, a dash or dots at the end: recognisers punctuate by ear."
    closed_text: float = 0.5
    "Of a full stop: recognisers write it after anything."
    question_text: float = 1.5
    "Of a question mark, which is not written after anything."
    resuming: float = 0.3
    "Probability of speech in the newest block from which the caller may just be going on: no end yet."
    pause_ms: int = 150
    "Shorter silences within a turn are consonants and tell nothing of a caller's pauses."
    usual_pause_ms: int = 450
    "What four out of five inner pauses of an unknown caller stay below."
    pauses: int = 16
    "Newest pauses of a caller that count."
    prior_pauses: int = 4
    "How many of them an unknown caller is taken to have made."
    least_pace: float = 0.85
    "A caller of short pauses is answered sooner by so much at most,"
    most_pace: float = 1.6
    "and one of long pauses later."
    draft_units: float = -1.0
    "Log-odds from which the engine is asked at once; below, "
    draft_ms: int = 250
    "so long before the wait is over."


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """Limits of a turn that no client changes."""

    min_speech_ms: int = 120
    "Voiced time before an onset is believed: clicks and most coughs are shorter."
    min_voiced_ms: int = 200
    "Voiced time in all without which a finished stretch is no turn: a cough is dropped."
    onset_window_ms: int = 240
    "Where `min_speech_ms` must lie: a stop consonant does not undo an onset, yet clicks do not add up."
    hysteresis: float = 0.15
    "How far below the threshold a voiced stretch stays voiced (Silero's own recommendation)."
    pause_ms: int = 80
    "Silence after which the engine is asked in advance: what is asked in vain is thrown away."
    max_turn_ms: int = 60_000
    "A longer turn is submitted as it is and the rest begins the next one."
    reopen_ms: int = 700
    "Who goes on so soon after the end of a turn was not at its end: both parts are answered as one."
    reopen_heard_ms: int = 800
    "But not if more than so much of the answer was heard: then it is an interruption."
    stall_s: float = 1.5
    "A speaking caller whose packets stop for so long has ended the turn."
    smart_turn: Path | None = None
    "ONNX file of a smart-turn v3 model that is asked too, or `bundled`: that of the package pipecat-ai."
    smart_turn_at_ms: tuple[int, ...] = (80, 200, 400, 700)
    "Silences at which it is asked: its verdict changes as silence grows (.11 at 200 ms, .96 at 400 ms)."
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)


@dataclass(frozen=True, slots=True)
class NearnessConfig:
    """When a voice is another's, far away, by how loud it is (of semantic_vad, from the second turn on)."""

    far_db: float = 12.0
    "Below the loud part of the caller's usual speech a voice is doubted: who mumbles is 10 dB below."
    window_ms: int = 300
    "Over which it is measured: single syllables vary by more, and a raised voice is noticed in time."
    soft_db: float = 3.0
    "Who is softer by no more than this besides may be the caller, turned away,"
    soft_ms: int = 1_200
    "and is believed after so much speech."
    believed_db: float = 8.0
    "The usual level is then taken for so much above: the same voice is not doubted again."
    wait_ms: int = 2_000
    "A caller who has no answer calls again after at least so long, where a television talks on,"
    patience_ms: int = 6_000
    "and after no more than this; then they are believed however soft,"
    least_call_ms: int = 400
    "if there was so much speech, both times,"
    longest_call_ms: int = 3_000
    "and no more the first time: who wants an answer says a sentence and waits."


@dataclass(frozen=True, slots=True)
class OverlapConfig:
    """What happens to an answer while somebody speaks over it."""

    duck_ms: int = 80
    "Speech after which the answer is heard softer: as soon as Silero is sure of anything."
    hold_ms: int = 120
    "Speech after which it waits, as soon as an onset is believed: clicks and most coughs are shorter."
    aside_ms: int = 450
    'Shorter speech may be an "mm-hm" that asks for nothing; longer speech takes the floor.'
    loud_db: float = 3.0
    "Above the loud part of the caller's usual speech, a word is no aside, however short: it is called out."
    loud_ms: int = 280
    'And that is known no sooner: of 150 coughs two have so much voice, and a "stop" has 220 to 360 ms.'
    let_go_ms: int = 300
    "Silence after such an aside, before the answer goes on: a sentence has shorter gaps."


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """The engine is asked as soon as the turn may be over, and what it says is held until it is."""

    enabled: bool = True
    burst: int = 6
    "Answers in vain that may be asked for one after the other."
    wasted_per_min: float = 12.0
    "And so many more a minute: a hesitant caller pauses every five seconds."


@dataclass(frozen=True, slots=True)
class PlayoutConfig:
    prebuffer_ms: int = 60
    "Least audio before the first block goes out."
    max_delay_ms: int = 1_000
    "The most that the start of a reply waits so that an engine with pauses is heard without holes."
    rebuffer_ms: int = 120
    "Audio gathered after an underrun before going on."
    fade_ms: int = 10
    "Fade at a flush, and of any change of volume: a hard cut clicks."
    duck_db: float = -12.0
    "Volume while somebody may be interrupting: still understood, and clearly giving way."
    max_buffered_s: float = 600.0
    "Audio beyond this is dropped and counted: an engine that never ends."


@dataclass(frozen=True, slots=True)
class CameraConfig:
    fps: float = 2.0
    "What Qwen3-Omni was trained on; around speech so many are looked at."
    idle_fps: float = 0.5
    "While nobody speaks: enough to have seen what came before the words. 0 looks at nothing then."
    linger_s: float = 3.0
    "How long after speech it is looked closely: most replies come by then."
    burst_ms: int = 200
    "Where speech pauses, the newest picture kept is no older: it goes with the turn if that is over."
    max_side: int = 1024
    before_ms: int = 1_000
    "Frames kept from before the speech."
    max_frames: int = 24
    "Per turn; a longer turn keeps frames spread over its whole length."
    jpeg_quality: int = 85
    max_bitrate: int = 1_500_000
    """In bit/s, told to the sender. Less makes libwebrtc scale 720p down, and text on a sign with it; a
    sender that shows as few pictures as it was asked for uses a fraction."""
    max_decode_load: float = 0.015
    """Of a core. A sender that shows many more pictures than are wanted, and takes more to decode, is asked
    for key frames, and only they are looked at. 360p at 30 a second takes 0.011, 720p 0.04."""

    def __post_init__(self) -> None:
        if self.fps <= 0:
            raise ConfigError("conversation.camera.fps must be above 0.")
        if not 0 <= self.idle_fps <= self.fps:
            raise ConfigError("conversation.camera.idle_fps must be 0 or more, and no more than fps.")


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    max_tokens: int | None = None
    "Context budget of a request; None is what engine.context_tokens leaves beside the answer."
    media_turns: int = 2
    "Newest user turns sent with sound and pictures; older ones as text."
    clip_tokens: int | None = None
    "The most that one turn's pictures cost as a clip; None is fusion.max_tokens where clips are sent."
    max_sounds: int = 24
    "In one request, clips included: a server takes `deploy.max_audios`. Only transcripts replace any."

    @property
    def budget(self) -> int:
        """`max_tokens`, or what suits the smallest of the engines, the embedded one."""
        return EngineConfig().history_tokens if self.max_tokens is None else self.max_tokens


@dataclass(frozen=True, slots=True)
class WatchdogConfig:
    first_delta_s: float = 30.0
    "From request to the first delta of a response."
    idle_delta_s: float = 20.0
    "Between deltas."
    response_s: float = 300.0
    "A whole response, playout included. The time that a Thinking model thinks does not count."
    transcript_s: float = 30.0
    "How long the transcript of a turn is waited for."


@dataclass(frozen=True, slots=True)
class ApologyConfig:
    """What the caller hears when an answer fails."""

    text: str = "Sorry, something went wrong. Please say that again."
    "Shown as a caption. Empty for no apology."
    sound: Path | None = None
    "The text spoken, a file that FFmpeg reads; None is the packaged or the embedded voice."


@dataclass(frozen=True, slots=True)
class GreetingConfig:
    """What the assistant says as soon as the caller is there."""

    text: str = ""
    "Shown as a caption and kept as said. Empty for none: whoever calls speaks first."
    sound: Path | None = None
    "The text spoken, a file that FFmpeg reads; None is the embedded voice."
    interruptible: bool = True
    "False for what every caller must hear, such as that the call is recorded."


@dataclass(frozen=True, slots=True)
class IdleConfig:
    """What becomes of a call in which nothing happens."""

    end_s: float | None = 900.0
    "Without a word, typed or spoken, after which the call ends: a forgotten page holds a place. None: never."
    warn_s: float = 15.0
    "How long before that the caller is warned: the sentence takes five, and an answer some more."
    text: str = "Are you still there? If I do not hear from you, I will hang up."
    "The warning. Empty warns the page alone."
    sound: Path | None = None
    "The warning spoken, a file that FFmpeg reads; None is the packaged or the embedded voice."
    nudge: str = (
        "(The user has been silent for a while. In one short sentence, go on from what was said last, "
        "or ask whether they are still there.)"
    )
    "What the engine reads beside the silence when `turn_detection.idle_timeout_ms` is over; kept nowhere."
    max_nudges: int = 3
    "In a row, without a word of the user: an empty chair needs no more."

    def __post_init__(self) -> None:
        if self.end_s is not None and self.end_s <= self.warn_s:
            raise ConfigError("conversation.idle.end_s must be above warn_s.")


@dataclass(frozen=True, slots=True)
class WaitingConfig:
    """What the caller hears while an answer is slow to come. It is no part of the answer."""

    play: Literal["nothing", "sound", "sentence"] = "nothing"
    "Off by default: with a fast engine a turn seldom takes so long, and then a sound is one more surprise."
    after_s: float = 1.5
    "From the end of the turn; silence longer than this is taken for a dropped call."
    text: str = "Let me think."
    "Spoken once a turn, where `play` is sentence."
    sound: Path | None = None
    "The sentence spoken, a file that FFmpeg reads; None is the embedded voice."


@dataclass(frozen=True, slots=True)
class AheadConfig:
    """A long turn's beginning is sent ahead while the user still speaks: the engine has seen it by the end.

    As clips to the engine `vllm` with interleaved media, for turns with pictures: `tools/bench/warm.py`
    measures it. As words to `local`, which hears and reads them: `tools/bench/local_engine.py` does.
    """

    clip_s: float = 8.0
    "A turn is cut at multiples of this; 0 sends nothing ahead. 8 s is how far the model's ear hears at once."
    max_clips: int = 7
    "Sent ahead of one turn: all but the end of the longest."
    words_s: float = 2.0
    "The words so far are sent so often; 0: never. More often, the last word more often finds the model busy."

    def __post_init__(self) -> None:
        if 0 < self.clip_s < 1:
            raise ConfigError(
                "conversation.ahead.clip_s must be 0 or from 1 on: a clip holds whole pictures."
            )
        if 0 < self.words_s < 0.5:
            raise ConfigError("conversation.ahead.words_s must be 0 or from 0.5 on.")


@dataclass(frozen=True, slots=True)
class FunctionsConfig:
    """Functions that the server runs itself when the model calls them."""

    max_rounds: int = 8
    "Answers in a row that call some without a word of the user; the next one must do without."

    def __post_init__(self) -> None:
        if self.max_rounds < 1:
            raise ConfigError("conversation.functions.max_rounds must be 1 or more.")


@dataclass(frozen=True, slots=True)
class ConversationConfig:
    session: SessionConfig = field(default_factory=SessionConfig)
    vad: VadConfig = field(default_factory=VadConfig)
    ear: EarConfig = field(default_factory=EarConfig)
    turns: TurnConfig = field(default_factory=TurnConfig)
    nearness: NearnessConfig = field(default_factory=NearnessConfig)
    overlap: OverlapConfig = field(default_factory=OverlapConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    playout: PlayoutConfig = field(default_factory=PlayoutConfig)
    camera: CameraConfig = field(default_factory=CameraConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    ahead: AheadConfig = field(default_factory=AheadConfig)
    apology: ApologyConfig = field(default_factory=ApologyConfig)
    greeting: GreetingConfig = field(default_factory=GreetingConfig)
    idle: IdleConfig = field(default_factory=IdleConfig)
    waiting: WaitingConfig = field(default_factory=WaitingConfig)
    functions: FunctionsConfig = field(default_factory=FunctionsConfig)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    host: str = "127.0.0.1"
    "Loopback until there is a key."
    port: int = 8080
    workers: int = 1
    "Processes that carry calls, one a core; above 1 another one in front of them takes the requests."
    node: str = ""
    "This machine's name in the ids of its calls, for a balancer that routes by them: a-z, 0-9 and hyphens."
    keys: tuple[str, ...] = field(default=(), repr=False)
    "Bearer keys. Without any, only loopback is served."
    origins: tuple[str, ...] = ()
    "Other origins whose pages may call; the server's own is always allowed."
    trusted_proxies: tuple[str, ...] = ()
    "Addresses or networks of balancers, whose X-Forwarded-For then tells who asks, for the limit below."
    max_calls: int = 20
    max_call_s: float = 3_600.0
    max_displays: int = 4
    "Of one call, that hear its answers; each takes an encoder."
    max_body: int = 262_144
    max_message: int = 262_144
    "Bytes of one data-channel message: what browsers allow at most."
    max_socket_message: int = 20 << 20
    "Bytes of one WebSocket message: OpenAI takes 15 MiB of sound in one, which is 20 as base64."
    max_events_per_s: float = 50.0
    max_requests_per_s: float = 20.0
    "By one address, of requests that open or end a call; three seconds' worth may come at once."
    agent_port: int = 0
    "TCP port where a balancer reads how much room there is (HAProxy's agent check); 0 is none."
    drain_s: float = 10.0
    "How long a shutdown waits for calls to end by themselves."
    restart_s: float = 600.0
    "How long calls may go on by the old settings after SIGHUP; longer ones are told and ended."

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ConfigError(f"server.workers must be 1 to {MAX_WORKERS}, not {self.workers}.")
        if NODE.fullmatch(self.node) is None:
            raise ConfigError(
                f"server.node: {self.node!r} is no name: use up to 32 of a-z, 0-9 and inner hyphens."
            )


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """Callers whose call was lost go on where they were."""

    keep_s: float = 60.0
    "After the end of a call in which its caller may come back; 0 keeps nothing."
    cut_short: Literal["again", "skip"] = "again"
    "An answer that the loss broke off goes on from the first word that was not heard, or is left there."
    memory_mb: int = 64
    "What is kept in this process, without Redis: some ten thousand conversations in writing."
    redis: str | None = field(default=None, repr=False)
    "URL of Redis, such as redis://host:6379/0: any node that has it goes on with any conversation."

    def __post_init__(self) -> None:
        if self.keep_s < 0:
            raise ConfigError("resume.keep_s must be 0 or more.")
        if self.memory_mb < 1:
            raise ConfigError("resume.memory_mb must be 1 or more.")


@dataclass(frozen=True, slots=True)
class IceServer:
    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    "In place of the two: shared with a TURN server (static-auth-secret), it makes them for each call."

    def __post_init__(self) -> None:
        if self.secret is not None and (self.username is not None or self.credential is not None):
            raise ConfigError(
                "rtc.ice_servers: a secret stands in place of username and credential; name either."
            )


def _check_address(setting: str, text: str) -> None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise ConfigError(
            f"{setting}: {text!r} is no IP address; write one like 203.0.113.5 or 2001:db8::5, without port "
            "or brackets."
        ) from error
    if address.is_unspecified or address.is_multicast or getattr(address, "scope_id", None) is not None:
        raise ConfigError(
            f"{setting}: {text} is no address that callers could send to; leave the setting empty for all "
            "that the machine has, or name some of them."
        )


@dataclass(frozen=True, slots=True)
class RtcConfig:
    ice_servers: tuple[IceServer, ...] = ()
    "Our own. None by default: a public STUN server learns who calls, and a dead one costs five seconds."
    caller_ice_servers: tuple[IceServer, ...] = ()
    "What callers are told of: a relay for those whose network lets no UDP through to this machine."
    turn_s: float = 86_400.0
    "For which a name made of a secret is good: it is looked at to the end of the longest call."
    udp_port: int = 0
    "The one port of all calls' media, to be opened in a firewall; 0 is any free one. N workers have 2 N."
    udp_hosts: tuple[str, ...] = ()
    "Addresses to listen on and to offer; empty is all that the machine has at the time of a call."
    advertise: tuple[str, ...] = ()
    "Addresses offered instead, where callers reach this machine by others: behind NAT, in containers."
    backend: Literal["lean", "stock"] = "lean"
    "`stock` uses aiortc as it is documented: for comparison, at three times the cost."
    opus_bitrate: int = 40_000
    "Of our voice, in bit/s: beyond it the likeness to the original hardly grows."
    opus_complexity: int = 5
    "0 to 10. Half the time of 10 for speech that sounds alike."
    connect_s: float = 20.0
    "From the answer to connected media."
    dead_peer_s: float = 3.5
    "No packet of any kind for so long is a dead peer."
    max_loss_hold_ms: int = 60
    "How long a gap is waited for before it is concealed: three packets."

    def __post_init__(self) -> None:
        for name in ("udp_hosts", "advertise"):
            for text in getattr(self, name):
                _check_address(f"rtc.{name}", text)
        if self.turn_s < 60:
            raise ConfigError("rtc.turn_s must be 60 or more.")
        if not 6_000 <= self.opus_bitrate <= 510_000:
            raise ConfigError("rtc.opus_bitrate must be from 6000 to 510000 bit/s.")
        if not 0 <= self.opus_complexity <= 10:
            raise ConfigError("rtc.opus_complexity must be from 0 to 10.")


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """Known faults of a speaking model, and from when on they are believed (ENGINE: #6090, #2953, #7474)."""

    guard: bool = True
    slowest_chars_per_s: float = 4.0
    "Speech that takes longer for its text derails or repeats; people speak 12 to 18 characters a second."
    fastest_chars_per_s: float = 40.0
    "A finished answer whose speech is shorter than this was cut off."
    grace_s: float = 4.0
    "Sound by which speech may run ahead of its text before it is judged."
    max_silence_s: float = 4.0
    "Digital silence within an answer; longer pauses are a Talker that has lost the thread."

    def __post_init__(self) -> None:
        if not 0 < self.slowest_chars_per_s < self.fastest_chars_per_s:
            raise ConfigError(
                "engine.talker.slowest_chars_per_s must be above 0 and below fastest_chars_per_s."
            )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    name: Literal["local", "vllm", "dashscope", "scripted"] = "local"
    label: str | None = None
    "What traces and logs call it; None is `name`."
    url: str = "http://127.0.0.1:8000"
    "Base URL of vLLM-Omni or of DashScope's compatible mode, or unix:///path for a socket."
    model: str = "Qwen/Qwen3-Omni-30B-A3B-Instruct"
    api_key: str | None = field(default=None, repr=False)
    "For dashscope, None takes the environment's DASHSCOPE_API_KEY."
    voice: str | None = None
    "Of who names none; None is the engine's own. A name that the engine does not have stands for one it has."
    media: Literal["auto", "interleaved", "separate", "frames"] = "auto"
    "How camera and speech travel; auto is interleaved for vllm, separate for local."
    speak: bool = True
    "False leaves the Talker off and asks for text alone."
    embedded_voice: bool = True
    "An answer that comes without sound is spoken by the embedded voice."
    embedded_ears: bool = True
    "What the user said is written down by the embedded recogniser where the engine does not do it."
    context_tokens: int | None = None
    "The model's window (`max_model_len`); None is 4096 for local, 65536 for dashscope, 32768 for others."
    tools: Literal["server", "text"] = "server"
    "Who reads the model's calls of functions: vllm with a tool parser, or we, in its text. Seen by refusals."
    thinking: bool = False
    "The model is a Thinking one, which is asked for text alone; its thoughts are neither spoken nor shown."
    thinking_tokens: int = 32_768
    "Budget of a Thinking model, thoughts included: its authors' advice. At most half of the window."
    temperature: float | None = None
    "Of the Thinker, as are the next seven; None leaves the choice to the model's generation_config."
    top_p: float | None = None
    top_k: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    connect_s: float = 5.0
    first_delta_s: float = 30.0
    idle_s: float = 20.0
    max_tokens: int = 512
    "Of an answer if the client does not say: spoken answers are short."
    max_tokens_cap: int = 8_192
    "The most that a client may ask for. At most a quarter of the window."
    max_concurrent: int = 8
    "Requests under way at once: vLLM-Omni's first audio grows with each (1172 ms at 6)."
    max_queued: int = 8
    "Requests waiting for a place; further ones go to the next engine or are refused as busy."
    talker: TalkerConfig = field(default_factory=TalkerConfig)

    @property
    def takes_ahead(self) -> Literal["clips", "words"] | None:
        """What of a turn that goes on is of use to the engine already."""
        if self.sends_clips:
            return "clips"
        return "words" if self.name == "local" else None

    @property
    def sends_clips(self) -> bool:
        """Whether a turn's camera and speech travel as one clip to an engine that joins them by time."""
        return self.name == "vllm" and self.media in ("auto", "interleaved")

    @property
    def window(self) -> int:
        """Tokens that a request and its answer may have together."""
        if self.context_tokens is not None:
            return self.context_tokens
        return {"local": 4_096, "dashscope": 65_536}.get(self.name, 32_768)

    @property
    def answer_tokens(self) -> int:
        """The most that one answer may have, thoughts included; the window must hold it and the history."""
        if self.thinking:
            return min(self.thinking_tokens, self.window // 2)
        return min(self.max_tokens_cap, self.window // 4)

    @property
    def history_tokens(self) -> int:
        """What is left for a request. A sixteenth is kept back, since the tokens of media are estimated."""
        return self.window - self.answer_tokens - self.window // 16


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """When an engine is passed over, and who tries a candidate."""

    failures: int = 3
    "In a row, before the answer or within, after which an engine is left alone."
    open_s: float = 15.0
    "For so long; then one request is let through to try it."
    patience_s: float = 8.0
    "For an engine's place and first delta while another could be asked: a caller waits no longer in silence."
    candidate_share: float = 0.1
    "Of the calls, which the engine under [candidate] answers first. A call keeps its choice."

    def __post_init__(self) -> None:
        if not 0 <= self.candidate_share <= 1:
            raise ConfigError(f"router.candidate_share is a share, 0 to 1, not {self.candidate_share:g}.")


@dataclass(frozen=True, slots=True)
class FusionConfig:
    """How a turn's pictures and speech become what the model sees and hears."""

    max_tokens: int = 16_384
    "Of one turn's media: the hosted model's bound, and half of the smallest context window."
    max_pixels: int = 2_000_000
    "Of one picture."
    segment_s: float = 60.0
    "Longer clips are cut: a fault or a cache miss then costs a minute and not the turn."
    cache_mb: int = 64
    "Encoded clips kept to be sent again as history, byte for byte."


@dataclass(frozen=True, slots=True)
class DeployConfig:
    """The vLLM-Omni server that `visavis engine` starts or prints. Several nodes each run their own part."""

    model: str | None = None
    "A path or a quantized checkpoint to serve under the name engine.model; None is engine.model."
    host: str = "127.0.0.1"
    "Loopback until engine.api_key is set: vLLM serves whoever reaches it."
    port: int = 8000
    vllm: str | None = None
    "Version whose flags are written, such as 0.30; None is the installed one."
    dtype: str = "bfloat16"
    "The checkpoint's own; float16 has too little range for its activations."
    quantization: str | None = None
    "Such as awq, gptq or fp8, of the Thinker; None reads it from the checkpoint."
    text_only: bool = False
    "The Thinker alone: one GPU of 80 GB holds it, and the embedded voice speaks."
    share_gpu: bool = False
    "All stages on the Thinker's GPUs: for a quantized checkpoint on 80 GB, or for 141 GB."
    tensor_parallel_size: int = 1
    "GPUs over which the Thinker is split; the Talker takes one."
    max_model_len: int = 32_768
    "65536 holds longer calls with more video, at 3.2 GB more of GPU memory per full conversation."
    max_num_seqs: int = 8
    "Answers under way at once: the first sound comes later with each, 1172 ms at 6 (technical report)."
    gpu_memory_utilization: float = 0.95
    "Of the Thinker's GPUs, which are its own: what weights leave holds conversations and their video."
    max_images: int = 32
    "This and the next two are of one request, history included (`limit_mm_per_prompt`)."
    max_audios: int = 24
    "Three turns with media, of which a long one is cut into eight clips (conversation.ahead)."
    max_videos: int = 24
    codec_chunk_frames: int = 10
    "Codec frames of 80 ms in later chunks of sound: 25, vLLM-Omni's own, leaves holes of 0.64 s at RTF 0.47."
    replicas: int = 1
    "Of every stage, or with `stage` of that stage, each on GPUs of its own."
    ray: bool = False
    "Ray places the stages on the nodes of its cluster; needs vLLM-Omni 0.32."
    transport: Literal["memory", "tcp", "rdma"] = "memory"
    "How stages hand over: shared memory on one node, Mooncake between nodes."
    master_address: str | None = None
    "Several nodes without Ray: address of the node that leads, the same on all of them."
    master_port: int = 26_000
    stage: int | None = None
    "The one stage that this node runs: 0 Thinker, 1 Talker, 2 vocoder; None is all."
    headless: bool = False
    "This node only runs its stage; the one that leads answers the requests."
    extra: tuple[str, ...] = ()
    "Further arguments, passed on last; engine flags among them apply to every stage."


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """The embedded engine."""

    cache_dir: Path | None = None
    "None is $XDG_CACHE_HOME/visavis."
    model: str = "qwen2.5-coder-1.5b-instruct"
    "Name in the manifest (`visavis models list`), a GGUF file, or owner/repository/file.gguf of the hub."
    llm_url: str | None = None
    "An OpenAI-compatible base URL used in place of the embedded language model."
    llm_model: str | None = None
    llm_api_key: str | None = field(default=None, repr=False)
    whisper: str = "whisper-base"
    "Name in the manifest, or a folder of a CTranslate2 Whisper."
    language: str | None = None
    "Two letters, or None: recognised per utterance."
    threads: int = 0
    "0 is physical cores minus one, two at least if there are two: the niceness keeps the media ahead."
    nice: int = 5
    queue: int = 8
    "Requests waiting at most; more are refused as busy."
    max_tokens: int = 70
    start_s: float = 180.0
    "A start that takes longer has failed."


@dataclass(frozen=True, slots=True)
class McpConfig:
    """One MCP server, of which each process that carries calls has its own connection."""

    name: str
    "Goes before the names of its functions, with an underscore."
    command: tuple[str, ...] = ()
    "Program and arguments of one that talks over standard input and output;"
    url: str | None = None
    "or where one answers over HTTP (streamable HTTP), such as https://host/mcp."
    env: tuple[str, ...] = field(default=(), repr=False)
    "NAME=value, for `command`, which is given nothing else of the environment but PATH, HOME and the like."
    headers: tuple[str, ...] = field(default=(), repr=False)
    "Name: value, for `url`."
    timeout_s: float | None = None
    "Of its functions, in place of `tools.timeout_s`."

    def __post_init__(self) -> None:
        if re.fullmatch(r"[A-Za-z0-9-]{1,32}", self.name) is None:
            raise ConfigError(f"tools.mcp: {self.name!r} is no name: use up to 32 letters, digits, hyphens.")
        if (self.url is None) is not bool(self.command):
            raise ConfigError(f"tools.mcp: {self.name} needs a command or a url, one of the two.")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"tools.mcp: the url of {self.name} must begin with http:// or https://.")
        if not all(re.match(r"[^=\0]+=", one) for one in self.env):
            raise ConfigError(f"tools.mcp: env of {self.name} has something other than NAME=value.")
        if not all(re.fullmatch(r"[!-9;-~]+:[^\r\n]*", one) for one in self.headers):
            raise ConfigError(f"tools.mcp: headers of {self.name} has something other than Name: value.")


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """Functions that the server runs itself when the model calls them. None is there by itself."""

    allow: tuple[str, ...] = ()
    "Their names, or patterns such as `files_*`: `look`, `end_call`, entry points, functions of MCP servers."
    timeout_s: float = 10.0
    "For one result: the caller waits in silence."
    max_output: int = 20_000
    "Characters of a result, about 6000 tokens."
    mcp: tuple[McpConfig, ...] = ()

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or any(server.timeout_s == 0 for server in self.mcp):
            raise ConfigError("tools.timeout_s must be above 0.")
        if self.max_output < 1:
            raise ConfigError("tools.max_output must be 1 or more.")
        if len({server.name for server in self.mcp}) < len(self.mcp):
            raise ConfigError("tools.mcp: two servers have the same name.")


@dataclass(frozen=True, slots=True)
class TraceConfig:
    dir: Path | None = None
    "Where one JSONL per call goes: inputs, actions and marks, no media. None writes nothing."


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    otlp_url: str | None = None
    """Where a trace of each call goes by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces: times of
    its turns and none of its words. Needs the extra `otel`; None sends nothing."""

    def __post_init__(self) -> None:
        if self.otlp_url is not None and not self.otlp_url.startswith(("http://", "https://")):
            raise ConfigError("telemetry.otlp_url must begin with http:// or https://, or be none.")


@dataclass(frozen=True, slots=True)
class KioskDeviceConfig:
    """What a device goes by as long as its operator has set nothing else on the page `/kiosk/approve`."""

    instructions: str | None = None
    "None is conversation.session's."
    voice: str | None = None
    "None is conversation.session's."
    language: str | None = None
    "Such as de or pt-BR: of answers and of the words on the screen. None: the caller's, and the browser's."
    idle_s: float = 20.0
    "Without motion, speech or touch after which a call ends and is forgotten: people think for ten."
    volume: float = 1.0
    "0 to 1, of what the device's own volume gives."
    title: str = ""
    "Shown while nobody is there, with the text below it; empty for words of the page's own."
    text: str = ""
    wake: Literal["motion", "touch"] = "motion"
    "What begins a call: whoever comes near, as the camera sees it, or a touch alone. Motion includes touch."

    def __post_init__(self) -> None:
        if not 0 <= self.volume <= 1:
            raise ConfigError("kiosk.device.volume must be from 0 to 1.")
        if self.idle_s < 5:
            raise ConfigError("kiosk.device.idle_s must be 5 or more.")


@dataclass(frozen=True, slots=True)
class KioskConfig:
    """Devices that are let in once by an operator and then call by themselves, at `/kiosk`."""

    enabled: bool = False
    "Off by default: a server that has no devices need not tell strangers codes."
    folder: Path | None = None
    "Where `kiosks.json` is kept, unless resume.redis is set. None is $XDG_STATE_HOME/visavis."
    url: str | None = None
    "This server's for who approves a device, such as https://visavis.example; None: as the device has it."
    code_s: float = 600.0
    "For so long a code is good: to find the operator and a key takes minutes."
    max_wanting: int = 20
    "Devices that wait to be approved at once; each shows a code."
    max_pairings_per_min: float = 6.0
    "By one address: a device asks for a code every ten minutes."
    poll_s: float = 5.0
    "How often devices ask for their settings: so late is a change noticed, or that a device was revoked."
    secret_s: float = 120.0
    "How long what a device calls with is good. It asks for another in time; a revoked one calls no longer."
    device: KioskDeviceConfig = field(default_factory=KioskDeviceConfig)

    def __post_init__(self) -> None:
        if self.poll_s < 0.1 or self.code_s < 10:
            raise ConfigError("kiosk.poll_s must be 0.1 or more, kiosk.code_s 10 or more.")
        if not 10 <= self.secret_s <= 7_200:
            raise ConfigError("kiosk.secret_s must be from 10 to 7200.")
        if self.max_wanting < 1 or self.max_pairings_per_min <= 0:
            raise ConfigError("kiosk.max_wanting must be 1 or more, kiosk.max_pairings_per_min above 0.")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"kiosk.url: {self.url!r} is no address; write one like https://visavis.example."
            )


@dataclass(frozen=True, slots=True)
class Config:
    server: ServerConfig = field(default_factory=ServerConfig)
    resume: ResumeConfig = field(default_factory=ResumeConfig)
    kiosk: KioskConfig = field(default_factory=KioskConfig)
    rtc: RtcConfig = field(default_factory=RtcConfig)
    conversation: ConversationConfig = field(default_factory=ConversationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    fallbacks: tuple[EngineConfig, ...] = ()
    "Engines that answer when the ones before them cannot, in order."
    candidate: EngineConfig | None = None
    "An engine on trial."
    router: RouterConfig = field(default_factory=RouterConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    deploy: DeployConfig = field(default_factory=DeployConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    def conversation_with(self, session: SessionConfig) -> ConversationConfig:
        """Return the conversation's settings with a client's own session and what suits the engine."""
        history = self.conversation.history
        if history.max_tokens is None:
            history = replace(history, max_tokens=self.engine.history_tokens)
        ahead, kind = self.conversation.ahead, self.engine.takes_ahead
        if kind != "words" or self.local.llm_url is not None:  # another's server is not made to work in vain
            ahead = replace(ahead, words_s=0.0)
        if kind != "clips":
            ahead = replace(ahead, clip_s=0.0)
        elif history.clip_tokens is None:
            history = replace(history, clip_tokens=self.fusion.max_tokens)
        return replace(self.conversation, session=session, history=history, ahead=ahead)
