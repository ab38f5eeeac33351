/** The page of a kiosk: it is let in once, waits for somebody, talks, and forgets. */

import { Call, HungUp } from "./call.js";
import { Captions } from "./captions.js";
import { Devices, obstacle } from "./devices.js";
import { Dialer, GivenUp } from "./dial.js";
import { byId, detailOf } from "./dom.js";
import { Face, FOLLOWED } from "./face.js";
import { Floor } from "./floor.js";
import { Attendance, Eye, Motion } from "./kiosk-presence.js";
import { KioskServer } from "./kiosk-server.js";
import { Watchdog } from "./kiosk-watchdog.js";
import { filled, wordsFor } from "./kiosk-words.js";
import { Notices } from "./notices.js";
import { SoundMeter } from "./sound.js";
import { Voice } from "./voice.js";
import { ScreenLight } from "./wake.js";

/** @typedef {import("./call.js").WireEvent} WireEvent */
/** @typedef {import("./face.js").Look} Look */
/** @typedef {import("./kiosk-server.js").Told} Told */
/** @typedef {import("./kiosk-server.js").Pairing} Pairing */
/** @typedef {import("./devices.js").Device} Device */
/** @typedef {"starting" | "pairing" | "gesture" | "attract" | "call" | "offline"} Screen */

/** So often it is looked whether somebody is there, and whether all is well. */
const TICK_MS = 200;
const METER_MS = 20;
/** A person who seems gone is asked so long before the end, or half of what is waited at all. */
const WARNING_MS = 8_000;
/** How long is shown that a call failed. */
const TROUBLE_MS = 8_000;
/** A server that does not answer for so long during a call has ended it. */
const OUTAGE_MS = 20_000;
/** What is missing, a camera that was unplugged, is looked for so often. */
const MEND_MS = 30_000;
/** A browser that wants a gesture first says so by then. */
const SOUND_MS = 500;
const PATIENCE_MS = 5_000;
const INTERRUPTED_MS = 1_000;
const KEY_MS = 10_000;
/** Characters of an operator's own words from which they are written smaller. */
const LONG = 160;

class KioskPage {
  #face = new Face();
  #devices = new Devices();
  #captions = new Captions(byId("captions", HTMLOListElement));
  #voice = new Voice();
  #light = new ScreenLight();
  #eye = new Eye();
  #motion = new Motion();
  #watchdog = new Watchdog();
  #server = new KioskServer();
  #floor = new Floor();
  #selfView = byId("self-view", HTMLVideoElement);
  #sound = byId("voice", HTMLAudioElement);

  /** @type {Screen} */
  #screen = "starting";
  /** @type {Look} */
  #look = "idle";
  #words = wordsFor(navigator.language).words;
  /** @type {Told | null} */
  #told = null;
  /** @type {Pairing | null} */
  #pairing = null;
  #offline = { until: 0, switchedOff: false };
  /** Since when the server has not answered, 0 if it does. */
  #outage = 0;
  #attendance = new Attendance(0);
  /** @type {Call | null} */
  #call = null;
  /** @type {string | null} */
  #token = null;
  #secret = "";
  #callEnding = false;
  /** The settings that the server goes by in this call, as it last told them. @type {any} */
  #agreed = null;
  /** The browser wants a touch before sound. */
  #muffled = false;
  #session = new AbortController();
  /** @type {SoundMeter | null} */
  #meter = null;
  #meterTimer = 0;
  #patience = 0;
  #interruption = 0;
  #mended = 0;
  #keyed = 0;
  #dialer = new Dialer({
    makeCall: () => this.#makeCall(),
    // Who stands before a kiosk can do nothing about it: nothing but the state is shown.
    notices: new Notices(document.createElement("div")),
    askKey: () => this.#askSecret(),
    onWaiting: (waiting) => this.#setLook(waiting ? "waiting" : "connecting"),
  });

  constructor() {
    this.#server.addEventListener("pairing", (event) => this.#showPairing(detailOf(event)));
    this.#server.addEventListener("told", (event) => this.#receiveTold(detailOf(event)));
    this.#server.addEventListener("offline", (event) => this.#wentOffline(detailOf(event)));
    this.#server.addEventListener("online", () => this.#cameBack());
    this.#devices.addEventListener("changed", (event) => this.#deviceChanged(detailOf(event)));
    this.#voice.addEventListener("playing", () => this.#setMuffled(false));
    this.#voice.addEventListener("blocked", () => this.#setMuffled(true));
    byId("end", HTMLButtonElement).addEventListener("click", () => this.#endSession(true));
    document.addEventListener("pointerdown", (event) => this.#touched(event));
    document.addEventListener("keydown", (event) => this.#touched(event));
    document.addEventListener("contextmenu", (event) => event.preventDefault());
    window.addEventListener("pagehide", () => this.#call?.hangUp());
    this.#light.kept = true;
    this.#show();
    window.setInterval(() => this.#tick(), TICK_MS);
    if (navigator.serviceWorker) void keepShell();
    void this.#server.run();
  }

  /** What there is to see, for tests and the curious. */
  get snapshot() {
    return {
      screen: this.#screen,
      state: this.#look,
      device: this.#told?.device ?? null,
      settings: this.#told?.settings ?? null,
      code: this.#pairing?.code ?? null,
      callId: this.#call?.id ?? null,
      live: this.#call?.isOpen ?? false,
      instructions: this.#agreed?.instructions ?? null,
      microphone: this.#devices.microphone?.label ?? null,
      camera: this.#devices.camera?.label ?? null,
      captions: this.#captions.all,
    };
  }

  // To be let in, and what to go by.

  /** @param {Pairing} pairing */
  #showPairing(pairing) {
    // Who was let in before is no longer: nothing of it goes on.
    this.#stop();
    this.#told = null;
    this.#pairing = pairing;
    this.#devices.closeAll();
    this.#setScreen("pairing");
  }

  /** @param {Told} told */
  #receiveTold(told) {
    const before = this.#told;
    this.#told = told;
    this.#pairing = null;
    this.#watchdog.version = told.version;
    const { words, language } = wordsFor(told.settings.language, navigator.language);
    this.#words = words;
    document.documentElement.lang = language;
    this.#sound.volume = told.settings.volume;
    if (JSON.stringify(before?.session) !== JSON.stringify(told.session)) this.#sendSession();
    if (before === null) void this.#enter();
    else this.#show();
  }

  #sendSession() {
    if (this.#told) this.#call?.send({ type: "session.update", session: this.#told.session });
  }

  /** It was let in, or begins anew: get ready for people. */
  async #enter() {
    if (!(await soundIsFree())) {
      this.#setScreen("gesture");
      return;
    }
    await this.#openDevices(["microphone", "camera"]);
    if (this.#told && this.#server.reachable) this.#setScreen("attract");
  }

  /** @param {Device[]} devices */
  async #openDevices(devices) {
    this.#mended = performance.now();
    await this.#devices.open(Object.fromEntries(devices.map((device) => [device, ""])));
    // While nobody talks the microphone is off. It was only asked for, so that the permission is there.
    if (this.#screen !== "call") this.#devices.close("microphone");
    this.#show();
  }

  // The server.

  /** @param {{until: number, switchedOff: boolean}} offline */
  #wentOffline(offline) {
    this.#offline = offline;
    this.#outage ||= performance.now();
    // A call may outlive it; if not, it is noticed by itself.
    if (this.#screen !== "call") this.#setScreen("offline");
    this.#show();
  }

  #cameBack() {
    this.#outage = 0;
    if (this.#screen !== "offline") return;
    if (this.#told) void this.#enter();
    else this.#setScreen(this.#pairing ? "pairing" : "starting");
  }

  // Somebody.

  /** @param {Event} event */
  #touched(event) {
    const now = performance.now();
    this.#attendance.spoke(now);
    if (this.#muffled) void this.#voice.retry();
    if (this.#screen === "gesture") {
      document.documentElement.requestFullscreen?.({ navigationUI: "hide" }).catch(() => {});
      void this.#enter();
    } else if (this.#screen === "attract") {
      event.preventDefault();
      void this.#begin();
    }
    this.#show();
  }

  #tick() {
    const now = performance.now();
    const idle = this.#screen !== "call";
    const fault = this.#watchdog.fault(now, idle);
    if (fault && this.#server.reachable) this.#watchdog.reload(fault);
    const share = this.#eye.look();
    const moves = share !== null && this.#motion.receive(share, now);
    if (this.#screen === "call") {
      if (moves) this.#attendance.moved(now);
      this.#attend(now);
    } else if (this.#screen === "attract") {
      if (this.#motion.comes && this.#told?.settings.wake === "motion") void this.#begin();
      if (!this.#devices.camera && now - this.#mended > MEND_MS) void this.#openDevices(["camera"]);
    } else if (this.#screen === "offline") {
      this.#show();
    }
  }

  /** Whether the person is there still, and the call goes on. @param {number} now */
  #attend(now) {
    const state = this.#floor.state;
    if (this.#look === "hearing") this.#attendance.spoke(now);
    else if (this.#look !== "listening" && this.#call?.isOpen) this.#attendance.listened(now);
    if (now - this.#keyed > KEY_MS) void this.#keepKey(now);
    const busy = this.#call?.isOpen ? (state === "thinking" ? state : "") : this.#look;
    if (this.#watchdog.isStuck(busy, now) || (this.#outage && !this.#call?.isOpen && now - this.#outage > OUTAGE_MS)) {
      console.info("kiosk: the call does not go on:", busy);
      this.#endSession(true);
    } else if (this.#leftMs(now) <= 0) {
      console.info("kiosk: nobody is there");
      this.#endSession(this.#attendance.isMotionAlone(now));
    } else {
      this.#show();
    }
  }

  /** Time that is left without a sign of the person. @param {number} now */
  #leftMs(now) {
    return this.#idleMs - this.#attendance.idleMs(now);
  }

  get #idleMs() {
    return (this.#told?.settings.idle_s ?? 0) * 1000;
  }

  // A call: from somebody's coming to their leaving, over as many connections as it takes.

  async #begin() {
    if (this.#screen !== "attract") return;
    this.#session = new AbortController();
    const { signal } = this.#session;
    this.#attendance = new Attendance(performance.now());
    this.#captions.clear();
    this.#look = "connecting";
    this.#setScreen("call");
    this.#meter ??= new SoundMeter();
    await this.#openDevices(["microphone"]);
    if (signal.aborted) return;
    this.#meterTimer = window.setInterval(() => this.#measure(), METER_MS);
    this.#server.askNow();
    if (await this.#askSecret()) await this.#connect(false);
    else if (!signal.aborted) this.#fail();
  }

  /** @param {boolean} again after a call was lost */
  async #connect(again) {
    const { signal } = this.#session;
    try {
      await this.#dialer.dial(signal, again);
    } catch (error) {
      if (!(error instanceof GivenUp || error instanceof HungUp)) throw error;
      if (error instanceof GivenUp) console.warn("kiosk: no call:", error.explanation.title, error.explanation.advice);
      if (!signal.aborted) this.#fail();
      return;
    }
    this.#setLook(this.#floor.state);
    void this.#attach("microphone");
    void this.#attach("camera");
  }

  #makeCall() {
    const { microphone, camera } = this.#devices;
    this.#token = this.#call?.token ?? this.#token;
    const session = this.#told?.session;
    const call = new Call({ key: this.#secret || null, former: this.#token, microphone, camera, session });
    this.#call = call;
    this.#floor = new Floor();
    this.#callEnding = false;
    call.addEventListener("event", (event) => this.#receive(detailOf(event)));
    call.addEventListener("stream", (event) => {
      this.#meter?.tap("voice", detailOf(event));
      void this.#voice.play(detailOf(event));
    });
    call.addEventListener("lost", () => this.#lost());
    return call;
  }

  /** Have what a call is made with; false if there is none. */
  async #askSecret() {
    const before = this.#secret;
    const secret = await this.#server.secret();
    // The same again was refused just now.
    if (secret !== null && secret === before && this.#call) {
      this.#server.forgetSecret();
      this.#secret = (await this.#server.secret()) ?? "";
      return this.#secret !== "" && this.#secret !== before;
    }
    this.#secret = secret ?? "";
    return secret !== null;
  }

  /** A call is hung up with a secret that is good then. @param {number} now */
  async #keepKey(now) {
    this.#keyed = now;
    const secret = await this.#server.secret();
    if (!secret) return;
    this.#secret = secret;
    if (this.#call) this.#call.key = secret;
  }

  #lost() {
    this.#token = this.#call?.token ?? null;
    this.#call = null;
    this.#captions.finish();
    if (this.#callEnding) this.#endSession(true);
    else void this.#connect(true);
  }

  /** It does not work now: say so, and wait for the next one. */
  #fail() {
    this.#stop();
    this.#setLook("trouble");
    const { signal } = this.#session;
    window.setTimeout(() => {
      if (this.#screen === "call" && signal === this.#session.signal) this.#endSession(true);
    }, TROUBLE_MS);
  }

  /**
   * Forget all of it and wait for somebody.
   * @param {boolean} distrust what moves now is not taken for the next one
   */
  #endSession(distrust) {
    this.#stop();
    this.#motion.reset(performance.now(), distrust);
    this.#setScreen(this.#server.reachable ? "attract" : "offline");
  }

  #stop() {
    this.#session.abort();
    this.#call?.hangUp();
    this.#call = null;
    this.#token = null;
    this.#agreed = null;
    window.clearInterval(this.#meterTimer);
    window.clearTimeout(this.#patience);
    window.clearTimeout(this.#interruption);
    this.#captions.clear();
    this.#devices.close("microphone");
    this.#meter?.tap("voice", null);
    this.#voice.stop();
    this.#muffled = false;
    this.#face.level = 0;
  }

  /** @param {WireEvent} event */
  #receive(event) {
    this.#floor.receive(event);
    this.#captions.receive(event);
    switch (event.type) {
      case "input_audio_buffer.speech_stopped":
      case "response.done":
        window.clearTimeout(this.#patience);
        this.#patience = window.setTimeout(() => {
          this.#floor.giveUp();
          this.#followFloor();
        }, PATIENCE_MS);
        break;
      case "output_audio_buffer.cleared":
        window.clearTimeout(this.#interruption);
        this.#interruption = window.setTimeout(() => {
          this.#floor.moveOn();
          this.#followFloor();
        }, INTERRUPTED_MS);
        break;
      case "session.created":
      case "session.updated":
        this.#agreed = event.session;
        break;
      case "visavis.call_ending":
        this.#callEnding = event.seconds === 0;
        break;
      case "error":
        console.warn("kiosk: the server reports an error:", event.error?.code, event.error?.message);
        break;
    }
    this.#followFloor();
  }

  #followFloor() {
    if (this.#call?.isOpen) this.#setLook(this.#floor.state);
  }

  #measure() {
    const side = FOLLOWED[this.#look];
    this.#face.level = side && this.#meter ? this.#meter.level(side) : 0;
  }

  /** @param {Device} device */
  #deviceChanged(device) {
    const track = this.#devices[device];
    const stream = track && new MediaStream([track]);
    if (device === "microphone") {
      this.#meter?.tap("microphone", stream);
    } else {
      this.#eye.camera = track;
      this.#selfView.srcObject = stream;
    }
    if (this.#call?.isOpen) void this.#attach(device);
    this.#show();
  }

  /** @param {Device} device */
  async #attach(device) {
    const track = this.#devices[device];
    if (device === "camera") await this.#call?.setCamera(track);
    else if (this.#call?.sendsAudio) await this.#call.setMicrophone(track);
  }

  // What is shown.

  /** @param {Screen} screen */
  #setScreen(screen) {
    if (screen !== this.#screen) console.info("kiosk:", this.#screen, "to", screen);
    this.#screen = screen;
    this.#server.doing = screen === "attract" || screen === "call" || screen === "offline" ? screen : "starting";
    if (screen !== "call") this.#look = screen === "offline" ? "trouble" : "idle";
    this.#show();
  }

  /** @param {Look} look */
  #setLook(look) {
    if (this.#screen !== "call") return;
    this.#look = look;
    this.#show();
  }

  /** @param {boolean} muffled */
  #setMuffled(muffled) {
    this.#muffled = muffled;
    this.#show();
  }

  #show() {
    const words = this.#words;
    document.body.dataset.screen = this.#screen;
    this.#face.look = this.#look;
    byId("self", HTMLElement).hidden = !this.#devices.camera;
    switch (this.#screen) {
      case "pairing":
        write("pairing-title", words.pairing);
        if (this.#pairing) this.#drawPairing(this.#pairing);
        break;
      case "gesture":
        write("gesture-button", this.#devices.asking ? words.allow : words.start);
        break;
      case "attract": {
        const { title = "", text = "", wake } = this.#told?.settings ?? {};
        const sees = wake === "motion" && this.#devices.camera !== null;
        byId("attract", HTMLElement).classList.toggle("long", title.length + text.length > LONG);
        write("attract-title", title || words.title);
        write("attract-text", text || (sees ? words.come : words.touch));
        write("attract-privacy", obstacle() === "insecure" ? words.insecure : sees ? words.privacy : "");
        break;
      }
      case "call":
        write("state-text", this.#remark());
        write("end", words.end);
        break;
      case "offline": {
        const seconds = Math.max(1, Math.ceil((this.#offline.until - performance.now()) / 1000));
        write("offline-title", words.offline);
        write("offline-how", this.#offline.switchedOff ? words.disabled : words.offlineHow);
        write("offline-next", filled(words.nextTry, { s: seconds }));
        break;
      }
    }
  }

  /** @param {Pairing} pairing */
  #drawPairing({ code, qr, url }) {
    write("pairing-how", filled(this.#words.pairingHow, { url: url.replace(/^https?:\/\//, "") }));
    write("pairing-code", `${code.slice(0, 3)} ${code.slice(3)}`);
    const picture = byId("pairing-qr", HTMLImageElement);
    if (picture.getAttribute("src") !== qr) picture.src = qr;
  }

  #remark() {
    const words = this.#words;
    const leftMs = this.#leftMs(performance.now());
    if (this.#devices.asking) return words.allow;
    if (this.#muffled) return words.start;
    if (this.#look !== "trouble" && leftMs < Math.min(WARNING_MS, this.#idleMs / 2)) {
      return filled(words.leaving, { s: Math.max(1, Math.ceil(leftMs / 1000)) });
    }
    if (this.#look === "listening" && !this.#devices.microphone) return words.deaf;
    return words.looks[this.#look];
  }
}

/** Whether sound may be played before anybody has touched the page. */
async function soundIsFree() {
  const context = new AudioContext();
  await Promise.race([context.resume(), new Promise((resolve) => window.setTimeout(resolve, SOUND_MS))]);
  const free = context.state === "running";
  await context.close();
  return free;
}

/** Keep the page's files, so that it starts while the server is away. Only pages from https or the machine itself can. */
async function keepShell() {
  try {
    await navigator.serviceWorker.register("/kiosk-worker.js", { scope: "/kiosk" });
    const { active } = await navigator.serviceWorker.ready;
    // What was loaded before there was a worker went past it.
    active?.postMessage(performance.getEntriesByType("resource").map(({ name }) => name));
  } catch (error) {
    console.info("kiosk: the page is not kept:", error);
  }
}

/**
 * @param {string} id
 * @param {string} text
 */
function write(id, text) {
  const element = byId(id, HTMLElement);
  if (element.textContent !== text) element.textContent = text;
}

const page = new KioskPage();
Object.defineProperty(window, "visavis", { get: () => page.snapshot });
