/** The call page: joins the call, the devices and what is shown. */

import { Call, HungUp } from "./call.js";
import { Captions } from "./captions.js";
import { Controls } from "./controls.js";
import { Devices, listDevices, obstacle } from "./devices.js";
import { Dialer, GivenUp } from "./dial.js";
import { byId, detailOf } from "./dom.js";
import { Face, FOLLOWED } from "./face.js";
import { Floor } from "./floor.js";
import { Notices } from "./notices.js";
import { explainDevice, LONGEST_CALL, LONGEST_SILENCE, NO_WEBRTC, SOUND_BLOCKED, SPEAKER_FAILED } from "./problems.js";
import { SharedScreen } from "./screen.js";
import { SoundMeter } from "./sound.js";
import { Status } from "./status.js";
import { Timings } from "./timings.js";
import { leaveToken, takeToken } from "./token.js";
import { choiceOf, sessionOf } from "./turns.js";
import { Voice } from "./voice.js";
import { ScreenLight } from "./wake.js";

/** @typedef {import("./call.js").WireEvent} WireEvent */
/** @typedef {import("./devices.js").Device} Device */
/** @typedef {import("./devices.js").DeviceProblem} DeviceProblem */
/** @typedef {import("./face.js").Look} Look */
/** @typedef {import("./notices.js").Notice} Notice */
/** @typedef {import("./turns.js").TurnChoice} TurnChoice */
/** @typedef {"idle" | "connecting" | "live" | "waiting" | "ended"} Phase */

const KEY = "visavis.key";
/** So long we show that an answer is coming when a turn has no response yet, or a response no sound. */
const PATIENCE_MS = 5_000;
/** So long an interruption is shown if nothing follows it. */
const INTERRUPTED_MS = 1_000;
const METER_MS = 20;
const ERROR_MS = 8_000;
/** Captions that a new call is reminded of after a loss. */
const REMINDED = 20;
/** Whether a server, any of those behind this address, takes calls. */
const READY = "/readyz";
const EVENTS_KEPT = 200;
/** Key of a notice about microphone and camera together; one about either has that name. */
const BOTH = "devices";

class CallPage {
  #face = new Face();
  #controls = new Controls();
  #devices = new Devices();
  #captions = new Captions(byId("captions", HTMLOListElement));
  #timings = new Timings((item) => this.#captions.extra(item));
  #notices = new Notices(byId("notices", HTMLElement));
  #status = new Status();
  #voice = new Voice();
  #light = new ScreenLight();
  #screen = new SharedScreen();
  #selfView = byId("self-view", HTMLVideoElement);

  /** @type {Phase} */
  #phase = "idle";
  /** @type {Look} */
  #look = "idle";
  #unsteady = false;
  /** Of the last call that was answered in this session: the next one goes on from it. @type {string | null} */
  #token = null;
  /** Whether the server remembers what was said in the call before: unknown, asked, or it has said so. */
  #memory = /** @type {"unknown" | "asked" | "resumed"} */ ("unknown");
  /** Why the server has said that this call is at its end. @type {import("./problems.js").Explanation | null} */
  #callEnding = null;
  /** The server goes away, and another one may take the call. */
  #moving = false;
  /** The caller tells when a turn begins and ends; between turns the microphone is muted. */
  #pressToTalk = false;
  #floor = new Floor();
  /** @type {Call | null} */
  #call = null;
  /** Ends what is waiting or connecting in the present session. */
  #session = new AbortController();
  /** @type {SoundMeter | null} */
  #meter = null;
  #meterTimer = 0;
  #patience = 0;
  #interruption = 0;
  /** @type {WireEvent[]} */
  #events = [];
  #dialer = new Dialer({
    makeCall: () => this.#makeCall(),
    notices: this.#notices,
    askKey: (reason) => this.#askKey(reason),
    onWaiting: (waiting) => this.#setPhase(waiting ? "waiting" : "connecting"),
  });

  constructor() {
    const controls = this.#controls;
    controls.addEventListener("start", () => this.#start(null));
    controls.addEventListener("hangup", () => this.#hangUp());
    controls.addEventListener("mute", () => this.#toggleMute());
    controls.addEventListener("camera", () => this.#toggleCamera());
    controls.addEventListener("share", () => (this.#screen.track ? this.#screen.end() : this.#screen.share()));
    controls.addEventListener("interrupt", () => this.#interrupt());
    controls.addEventListener("text", (event) => this.#say(detailOf(event)));
    controls.addEventListener("device", (event) => this.#changeDevice(detailOf(event)));
    controls.addEventListener("speaker", () => this.#useSpeaker());
    controls.addEventListener("turns", () => this.#applyTurns());
    this.#voice.addEventListener("playing", () => this.#notices.hide("sound"));
    this.#voice.addEventListener("blocked", () => {
      const actions = { "Tap to hear": () => this.#voice.retry() };
      this.#notices.show("sound", { ...SOUND_BLOCKED, actions, lasting: true });
    });
    this.#screen.addEventListener("changed", () => this.#screenChanged());
    this.#devices.addEventListener("changed", (event) => this.#deviceChanged(detailOf(event)));
    this.#devices.addEventListener("problem", (event) => this.#deviceFailed(detailOf(event)));
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.#showDevices());
    // No call outlives its page; but the page may be loaded again, or be kept and come back.
    window.addEventListener("pagehide", () => this.#leave());
    window.addEventListener("pageshow", ({ persisted }) => persisted && this.#comeBack());
    void this.#showDevices();
    this.#show();
    if (!("RTCPeerConnection" in window)) {
      controls.disableStart();
      this.#notices.show("browser", { ...NO_WEBRTC, lasting: true });
      return;
    }
    const reason = obstacle();
    if (reason) this.#deviceFailed({ devices: ["microphone", "camera"], reason });
    this.#comeBack();
  }

  /** What there is to see, for tests and the curious. */
  get snapshot() {
    return {
      phase: this.#phase,
      state: this.#look,
      callId: this.#call?.id ?? null,
      muted: this.#devices.muted,
      microphone: this.#devices.microphone?.label ?? null,
      camera: this.#devices.camera?.label ?? null,
      screen: this.#screen.track !== null,
      captions: this.#captions.all,
      timings: this.#timings.all,
      notices: this.#notices.all,
      events: [...this.#events],
    };
  }

  // One session: from Start to Hang up, over as many calls as it takes.

  /** @param {string | null} token of a call that this session goes on from */
  async #start(token) {
    if (this.#inSession) return;
    this.#session = new AbortController();
    this.#token = token;
    const { signal } = this.#session;
    this.#setPhase("connecting");
    this.#notices.clear();
    this.#captions.clear();
    this.#timings.clear();
    this.#events = [];
    this.#meter ??= new SoundMeter();
    this.#applyTurns();
    await this.#openDevices(this.#controls.cameraWanted ? ["microphone", "camera"] : ["microphone"]);
    if (signal.aborted) return;
    this.#meterTimer = window.setInterval(() => this.#measure(), METER_MS);
    await this.#connect(token !== null);
  }

  /** The page goes away: if it is only loaded anew, the call goes on there. */
  #leave() {
    const token = this.#call?.token ?? this.#token;
    if (this.#inSession && token) {
      leaveToken(token);
      this.#call?.leave();
    }
    this.#hangUp();
  }

  /** Go on from the call that this page was in before it was loaded. */
  #comeBack() {
    const token = takeToken();
    if (token) void this.#start(token);
  }

  /** @param {boolean} again after a call was lost */
  async #connect(again) {
    const { signal } = this.#session;
    try {
      await this.#dialer.dial(signal, again);
    } catch (error) {
      if (error instanceof GivenUp) this.#fail(error.explanation);
      else if (!(error instanceof HungUp)) throw error;
      else if (!signal.aborted) this.#endSession("idle");
      return;
    }
    this.#connected(again);
  }

  #makeCall() {
    const { microphone, camera } = this.#devices;
    this.#token = this.#call?.token ?? this.#token;
    const call = new Call({ key: sessionStorage.getItem(KEY), former: this.#token, microphone, camera });
    this.#call = call;
    this.#memory = "unknown";
    this.#floor = new Floor();
    this.#callEnding = null;
    this.#moving = false;
    this.#unsteady = false;
    call.addEventListener("event", (event) => this.#receive(detailOf(event)));
    call.addEventListener("stream", (event) => {
      this.#meter?.tap("voice", detailOf(event));
      void this.#voice.play(detailOf(event));
    });
    call.addEventListener("unsteady", () => this.#setUnsteady(true));
    call.addEventListener("steady", () => this.#setUnsteady(false));
    call.addEventListener("lost", () => this.#lost());
    return call;
  }

  /** @param {boolean} again */
  #connected(again) {
    this.#setPhase("live");
    this.#applyTurns();
    if (again) {
      this.#goOn();
      this.#captions.note("Connected again");
    }
    // Its owner may have found a microphone, or turned the camera, while the call was being made.
    void this.#attach("microphone");
    void this.#attach("camera");
    void this.#call?.setScreen(this.#screen.track);
  }

  /** A server may remember the call before, and then says so first; by the answer to this it is known. */
  #goOn() {
    if (this.#memory === "resumed") return;
    this.#memory = "asked";
    this.#call?.send({ type: "session.update", session: { type: "realtime" } });
  }

  /** Tell a server that does not know it what was said. */
  #remind() {
    const said = this.#captions.all.map(({ id, role, text, heard }) => ({ id, role, text: text.slice(0, heard ?? undefined) }));
    for (const { id, role, text } of said.filter(({ text }) => text.trim()).slice(-REMINDED)) {
      const content = [{ type: role === "user" ? "input_text" : "output_text", text }];
      this.#call?.send({ type: "conversation.item.create", item: { id, type: "message", role, content } });
    }
  }

  #lost() {
    this.#token = this.#call?.token ?? null;
    this.#call = null;
    this.#captions.finish();
    if (this.#callEnding) {
      this.#fail(this.#callEnding);
      return;
    }
    this.#captions.note("Connection lost");
    this.#setPhase("connecting");
    void this.#connect(true);
  }

  /** The server goes away: go on at another one, while nobody speaks, if there is one; if not, here to the end. */
  async #move() {
    const call = this.#call;
    if (!this.#moving || !call?.token || this.#floor.state !== "listening") return;
    this.#moving = false;
    const ready = await fetch(READY, { cache: "no-store" }).then(({ ok }) => ok, () => false);
    if (call !== this.#call) return;
    if (!ready || this.#floor.state !== "listening") {
      this.#moving = true;
      return;
    }
    call.leave();
    this.#token = call.token;
    this.#call = null;
    this.#setPhase("connecting");
    void this.#connect(true);
  }

  #hangUp() {
    if (!this.#inSession) return;
    this.#call?.hangUp();
    this.#endSession("ended");
  }

  /** @param {import("./problems.js").Explanation} explanation */
  #fail(explanation) {
    this.#endSession("ended", "trouble");
    this.#notices.show("failed", explanation);
  }

  /**
   * @param {"idle" | "ended"} phase
   * @param {"idle" | "trouble"} look
   */
  #endSession(phase, look = "idle") {
    this.#session.abort();
    this.#call = null;
    this.#token = null;
    window.clearInterval(this.#meterTimer);
    window.clearTimeout(this.#patience);
    window.clearTimeout(this.#interruption);
    this.#captions.finish();
    this.#devices.closeAll();
    this.#screen.end();
    this.#setPressToTalk(false);
    this.#meter?.tap("voice", null);
    this.#voice.stop();
    this.#face.level = 0;
    this.#notices.clear();
    this.#look = look;
    this.#setPhase(phase);
  }

  get #inSession() {
    return this.#phase !== "idle" && this.#phase !== "ended";
  }

  /** @param {string} message what the server said of the key it got */
  async #askKey(message) {
    const key = await this.#controls.askKey(sessionStorage.getItem(KEY) ? message || "This key was not accepted." : "");
    if (key !== null) sessionStorage.setItem(KEY, key);
    return key !== null;
  }

  // Events of the call.

  /** @param {WireEvent} event */
  #receive(event) {
    this.#events.push(event);
    if (this.#events.length > EVENTS_KEPT) this.#events.shift();
    this.#floor.receive(event);
    this.#captions.receive(event);
    this.#timings.receive(event, performance.now());
    switch (event.type) {
      case "session.created":
      case "session.updated":
        this.#showTurns(choiceOf(event.session));
        if (event.type === "session.updated" && this.#memory === "asked") {
          this.#memory = "unknown";
          this.#remind();
        }
        break;
      case "visavis.resumed":
        this.#memory = "resumed";
        for (const id of this.#captions.goOn(event.item_ids).slice(-REMINDED)) {
          this.#call?.send({ type: "conversation.item.retrieve", item_id: id });
        }
        break;
      case "output_audio_buffer.cleared":
        window.clearTimeout(this.#interruption);
        this.#interruption = window.setTimeout(() => {
          this.#floor.moveOn();
          this.#floorChanged();
        }, INTERRUPTED_MS);
        break;
      case "input_audio_buffer.speech_stopped":
        this.#expectMore();
        break;
      case "conversation.item.truncated":
        // Our server tells with it what is left of the text; others can be asked.
        if (event.transcript === undefined) this.#call?.send({ type: "conversation.item.retrieve", item_id: event.item_id });
        break;
      case "response.done":
        this.#expectMore();
        if (event.response.status === "failed") {
          this.#captions.note(`No answer: ${event.response.status_details?.error?.message ?? "the assistant failed."}`);
        }
        break;
      case "visavis.call_ending":
        if (event.seconds === 0) this.#callEnding = event.code === "idle" ? LONGEST_SILENCE : LONGEST_CALL;
        this.#moving = event.code === "shutting_down";
        if (event.seconds > 0) this.#captions.note(`${event.reason} ${event.seconds} s are left.`);
        break;
      case "error":
        this.#showError(event.error);
        break;
    }
    this.#floorChanged();
  }

  #floorChanged() {
    void this.#move();
    this.#show();
  }

  /** Something should come by itself now; if nothing does, it is not waited for in vain. */
  #expectMore() {
    window.clearTimeout(this.#patience);
    this.#patience = window.setTimeout(() => {
      this.#floor.giveUp();
      this.#floorChanged();
    }, PATIENCE_MS);
  }

  /** @param {{type?: string, code?: string, message?: string}} error */
  #showError({ type, code, message }) {
    console.warn("the server reports an error:", type, code, message);
    // What fails in the engine also fails a response, and is told there. An answer may end by itself while it is being stopped.
    if (type === "server_error" || code === "response_cancel_not_active") return;
    const key = `error-${code}`;
    this.#notices.show(key, { title: "The server reports a problem", advice: message ?? "" });
    window.setTimeout(() => this.#notices.hide(key), ERROR_MS);
  }

  #measure() {
    const meter = this.#meter;
    if (!meter) return;
    const onset = meter.onset();
    if (onset !== null) this.#timings.heard(onset);
    const side = FOLLOWED[this.#look];
    this.#face.level = side ? meter.level(side) : 0;
  }

  // What the person does.

  /** @param {string} text */
  #say(text) {
    this.#interrupt();
    this.#timings.typed(performance.now());
    const content = [{ type: "input_text", text }];
    this.#call?.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    this.#call?.send({ type: "response.create" });
  }

  #interrupt() {
    if (!this.#floor.interruptible) return;
    if (this.#floor.generating) this.#call?.send({ type: "response.cancel" });
    this.#call?.send({ type: "output_audio_buffer.clear" });
  }

  #toggleMute() {
    if (!this.#devices.microphone) return;
    const muted = !this.#devices.muted;
    this.#devices.muted = muted;
    if (this.#pressToTalk) this.#talk(!muted);
    else this.#status.announce(muted ? "Microphone muted" : "Microphone on");
    this.#show();
  }

  /** Begin a turn that the caller ends, or end it. @param {boolean} begin */
  #talk(begin) {
    if (begin) {
      this.#interrupt();
      this.#call?.send({ type: "input_audio_buffer.clear" });
    } else {
      this.#call?.send({ type: "input_audio_buffer.commit" });
      this.#call?.send({ type: "response.create" });
    }
  }

  /** Let turns end as the person has chosen; without a choice, as the server has it. */
  #applyTurns() {
    const choice = this.#controls.turns;
    if (!choice) return;
    this.#call?.send({ type: "session.update", session: sessionOf(choice) });
    this.#setPressToTalk(choice === "press");
    this.#show();
  }

  /** The server has told its way. @param {TurnChoice | undefined} choice */
  #showTurns(choice) {
    if (!choice || this.#controls.turns) return;
    this.#controls.showTurns(choice);
    this.#setPressToTalk(choice === "press");
  }

  /** @param {boolean} press */
  #setPressToTalk(press) {
    if (press === this.#pressToTalk) return;
    this.#pressToTalk = press;
    this.#devices.muted = press;
  }

  async #toggleCamera() {
    this.#controls.cameraWanted = !this.#devices.camera;
    if (this.#devices.camera) this.#devices.close("camera");
    else await this.#openDevices(["camera"]);
  }

  /** @param {Device} device of which another was chosen */
  async #changeDevice(device) {
    // Outside a call a choice is only remembered; in a call a camera that is off stays off.
    if (this.#inSession && (device === "microphone" || this.#devices.camera)) await this.#openDevices([device]);
  }

  // Devices.

  /** @param {Device[]} devices */
  async #openDevices(devices) {
    this.#notices.hide(...devices, BOTH);
    await this.#devices.open(Object.fromEntries(devices.map((device) => [device, this.#controls.chosen(device)])));
    // Only now does the browser tell their names.
    await this.#showDevices();
    this.#show();
  }

  /** @param {Device} device */
  #deviceChanged(device) {
    const track = this.#devices[device];
    const stream = track && new MediaStream([track]);
    if (device === "microphone") {
      this.#meter?.tap("microphone", stream);
    } else {
      this.#selfView.srcObject = stream;
      this.#selfView.classList.toggle("mirrored", track?.getSettings().facingMode !== "environment");
    }
    if (this.#phase === "live") void this.#attach(device);
    this.#show();
  }

  #screenChanged() {
    const { track } = this.#screen;
    void this.#call?.setScreen(track);
    this.#status.announce(track ? "Your screen is shared" : "Your screen is no longer shared");
    this.#show();
  }

  /** Send what a device gives, or nothing. @param {Device} device */
  async #attach(device) {
    const call = this.#call;
    const track = this.#devices[device];
    if (device === "camera") {
      await call?.setCamera(track);
    } else if (call?.sendsAudio) {
      await call.setMicrophone(track);
    } else if (call && track) {
      // The call was agreed on without a microphone; another one is quickly made.
      call.hangUp();
      this.#setPhase("connecting");
      await this.#connect(false);
      if (this.#phase === "live") this.#goOn();
    }
  }

  /** @param {DeviceProblem} problem */
  #deviceFailed(problem) {
    const { devices, reason } = problem;
    const hopeless = reason === "insecure" || reason === "unsupported";
    /** @type {Notice["actions"]} */
    const actions = hopeless || !this.#inSession ? {} : { "Try again": () => this.#openDevices(devices) };
    this.#notices.show(devices.length > 1 ? BOTH : devices[0], { ...explainDevice(problem), actions });
  }

  async #useSpeaker() {
    const usable = await this.#voice.useSpeaker(this.#controls.chosen("speaker"));
    if (usable) this.#notices.hide("speaker");
    else this.#notices.show("speaker", SPEAKER_FAILED);
  }

  async #showDevices() {
    this.#controls.showChoices(await listDevices());
  }

  // What is shown.

  /** @param {Phase} phase */
  #setPhase(phase) {
    if (phase !== this.#phase) console.info("call page:", this.#phase, "to", phase);
    this.#phase = phase;
    this.#show();
  }

  /** @param {boolean} unsteady */
  #setUnsteady(unsteady) {
    this.#unsteady = unsteady;
    this.#show();
  }

  #show() {
    const phase = this.#phase;
    if (phase === "connecting" || phase === "waiting") this.#look = phase;
    else if (phase === "live") this.#look = this.#floorLook;
    else if (this.#look !== "trouble") this.#look = "idle";
    this.#face.look = this.#look;
    this.#status.show(this.#look, this.#remark());
    this.#light.kept = phase === "live";
    this.#controls.show({
      phase,
      muted: this.#devices.muted,
      pressToTalk: this.#pressToTalk,
      hasMicrophone: this.#devices.microphone !== null,
      hasCamera: this.#devices.camera !== null,
      sharesScreen: this.#screen.track !== null,
      interruptible: phase === "live" && this.#floor.interruptible,
      hasCaptions: !this.#captions.isEmpty,
    });
  }

  /** @returns {Look} */
  get #floorLook() {
    const { state } = this.#floor;
    // Of a turn that the caller begins, the server tells nothing until it ends.
    return this.#pressToTalk && !this.#devices.muted && state === "listening" ? "hearing" : state;
  }

  /** What is more to the point than the name of the state; null if nothing is. */
  #remark() {
    if (this.#phase === "connecting" && this.#devices.asking) return "Allow microphone and camera";
    if (this.#phase === "ended" && this.#look === "idle") return "Call ended";
    if (this.#phase === "live") {
      if (this.#unsteady) return "The connection is unsteady";
      if (this.#look === "listening" && !this.#devices.microphone) return "Type to talk";
      if (this.#look === "listening" && this.#devices.muted) return this.#pressToTalk ? "Press Talk to speak" : "You are muted";
    }
    return null;
  }
}

const page = new CallPage();
Object.defineProperty(window, "visavis", { get: () => page.snapshot });
