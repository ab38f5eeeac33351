/** One call: a peer connection, its signalling over HTTP and its event channel. */

import { askIceServers, Trickle } from "./ice.js";
import { onNetworkChange } from "./network.js";
import { Pictures } from "./pictures.js";

/** @typedef {{type: string, [field: string]: any}} WireEvent */

const CALLS = "/v1/realtime/calls";
const CHANNEL = "oai-events";
/** Our server answers with one, and whoever has it goes on from that call. */
const TOKEN = "Visavis-Session-Token";

/** Host candidates come at once; a resolver or interface that dawdles does not hold up the call. */
const GATHER_MS = 250;
const ANSWER_MS = 20_000;
/** Who comes back does not wait so long for one answer: what was sent into a dead network is soon sent anew. */
const ANSWER_AGAIN_MS = 4_000;
const CONNECT_MS = 12_000;
/** Nothing comes for so long, which may be mere silence: a server that is known to answer is sent a ping, and again. */
const QUIET_MS = 600;
/** Still nothing, and it is asked over HTTP whether it has the call, */
const DOUBT_MS = 1_000;
/** which may take it so long, and is not asked more often. */
const ASK_MS = 2_000;
/** It has, but nothing comes: packets go where this device is no longer. */
const ASTRAY_MS = 1_600;
/** No packet for so long after the network has changed, and the call is lost. */
const CHANGED_MS = 700;
/** ICE tells "disconnected" only after seconds without an answer; the network gets this much more to recover. */
const UNSTEADY_MS = 1_500;
const WATCH_MS = 250;
/** What a server, or a balancer before it, says of a call that it has no more: unknown, lost, or nobody there to ask. */
const GONE = [404, 410, 502, 503, 504];
/** The server looks at two pictures a second of the camera, and at no more than one of a screen. */
const CAMERA = { bitrate: 300_000, fastest: 2, hint: /** @type {const} */ ("detail") };
const SCREEN = { bitrate: 300_000, fastest: 1, hint: /** @type {const} */ ("text") };

/** The server answered, but not with a call. */
export class CallRefused extends Error {
  /**
   * @param {number} status HTTP status
   * @param {string} message what the server said
   * @param {string} code the server's own name of the refusal, or ""
   * @param {number | null} retryAfterS
   */
  constructor(status, message, code, retryAfterS) {
    super(message);
    this.name = "CallRefused";
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

/** No answer over HTTP. */
export class ServerUnreachable extends Error {
  name = "ServerUnreachable";
}

/** The server took the call, but no media path came about. */
export class NoMediaPath extends Error {
  name = "NoMediaPath";
}

/** Hung up while the call was being made. */
export class HungUp extends Error {
  name = "HungUp";
}

/**
 * Events: `event` (detail: WireEvent), `stream` (detail: MediaStream), `unsteady`, `steady`, and once `lost` when an open
 * call ends that nobody hung up.
 */
export class Call extends EventTarget {
  /** @type {string | null} */
  id = null;
  /** By which another call can go on from this one; null if the server knows no such thing. @type {string | null} */
  token = null;

  #peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
  #trickle = new Trickle(this.#peer);
  #channel = this.#peer.createDataChannel(CHANNEL);
  /** @type {"new" | "opening" | "open" | "closed"} */
  #state = "new";
  /** @type {URL | null} */
  #resource = null;
  /** @type {string | null} */
  #key;
  #settings;
  /** Token of the call that this one goes on from. @type {string | null} */
  #former;
  /** @type {RTCRtpTransceiver} */
  #audio;
  /** @type {Pictures} */
  #camera;
  /** The second of the video sections: the server takes it for a screen. @type {Pictures} */
  #screen;
  /** @type {(error: Error) => void} */
  #fail = () => {};
  #watch = 0;
  #unsteadySince = 0;
  /** When the last packet or event came. */
  #heardAt = 0;
  #timestamp = -1;
  /** The server has said since that it has the call. */
  #known = false;
  /** When the network changed, if nothing has come since. */
  #changedAt = 0;
  #closed = new AbortController();
  #asking = false;
  #askedAt = 0;

  /**
   * @param {object} options
   * @param {string | null} options.key bearer key
   * @param {string | null} options.former token of a call that was lost, from which this one is to go on
   * @param {MediaStreamTrack | null} options.microphone without one the call only receives sound
   * @param {MediaStreamTrack | null} options.camera can be given later, too
   * @param {object} [options.session] settings to begin with, as on the wire
   */
  constructor({ key, former, microphone, camera, session = { type: "realtime" } }) {
    super();
    this.#key = key;
    this.#settings = session;
    this.#former = former;
    this.#audio = this.#peer.addTransceiver(microphone ?? "audio", { direction: microphone ? "sendrecv" : "recvonly" });
    this.#camera = new Pictures(this.#peer, CAMERA);
    this.#screen = new Pictures(this.#peer, SCREEN);
    if (camera) void this.setCamera(camera);
    this.#peer.addEventListener("track", ({ track, streams }) => {
      this.#tell("stream", streams[0] ?? new MediaStream([track]));
    });
    this.#peer.addEventListener("connectionstatechange", () => this.#connectionChanged());
    this.#channel.addEventListener("message", ({ data }) => this.#receive(data));
    this.#channel.addEventListener("close", () => this.#lose());
    onNetworkChange(() => (this.#changedAt = performance.now()), this.#closed.signal);
  }

  get isOpen() {
    return this.#state === "open";
  }

  /** What is asked from now on is asked with another bearer key: one that expires is changed in time. @param {string | null} key */
  set key(key) {
    this.#key = key;
  }

  /** Whether a microphone can be attached without a new call. */
  get sendsAudio() {
    return this.#audio.direction === "sendrecv";
  }

  /** Make the call. Rejects with CallRefused, ServerUnreachable, NoMediaPath or HungUp, and is closed then. */
  async open() {
    this.#state = "opening";
    try {
      const iceServers = await askIceServers(this.#headers());
      this.#peer.setConfiguration({ iceServers, bundlePolicy: "max-bundle" });
      await this.#peer.setLocalDescription();
      await this.#gathered();
      await this.#peer.setRemoteDescription({ type: "answer", sdp: await this.#post() });
      await this.#connected();
    } catch (error) {
      const hungUp = this.#isClosed;
      // What a call goes on from is not given up with it: the next attempt has its token.
      if (this.#former && this.token) this.#close();
      else this.hangUp();
      if (hungUp) throw new HungUp("hung up");
      throw error instanceof DOMException ? new NoMediaPath(error.message, { cause: error }) : error;
    }
    this.#state = "open";
    this.#heardAt = performance.now();
    this.#watch = window.setInterval(() => this.#check(), WATCH_MS);
  }

  /**
   * Send an event; false if the channel is not open.
   * @param {WireEvent} event
   */
  send(event) {
    if (this.#channel.readyState !== "open") return false;
    this.#channel.send(JSON.stringify(event));
    return true;
  }

  /** @param {MediaStreamTrack | null} track */
  async setMicrophone(track) {
    await this.#audio.sender.replaceTrack(track);
  }

  /** @param {MediaStreamTrack | null} track */
  async setCamera(track) {
    await this.#camera.send(track);
  }

  /** @param {MediaStreamTrack | null} track */
  async setScreen(track) {
    await this.#screen.send(track);
  }

  /** End the call here and at the server. May be called at any time, also twice, also while the page goes away. */
  hangUp() {
    if (this.#isClosed) return;
    this.#close();
    this.#release();
  }

  /** End the call here alone: with its token another one goes on from it. */
  leave() {
    this.#close();
  }

  get #isClosed() {
    return this.#state === "closed";
  }

  #close() {
    if (this.#isClosed) return;
    this.#state = "closed";
    this.#closed.abort();
    window.clearInterval(this.#watch);
    this.#fail(new HungUp("hung up"));
    this.#channel.close();
    this.#peer.close();
  }

  /** Free the call at the server; it notices a vanished caller anyway, only later. */
  #release() {
    if (!this.#resource) return;
    const resource = this.#resource;
    this.#resource = null;
    fetch(resource, { method: "DELETE", headers: this.#headers(), keepalive: true }).catch(() => {});
  }

  /** @returns {Record<string, string>} */
  #headers() {
    return this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
  }

  async #gathered() {
    if (this.#peer.iceGatheringState === "complete") return;
    await new Promise((resolve) => {
      this.#peer.addEventListener("icegatheringstatechange", () => {
        if (this.#peer.iceGatheringState === "complete") resolve(null);
      });
      window.setTimeout(resolve, GATHER_MS);
    });
  }

  /** Post the offer; returns the answer. */
  async #post() {
    const form = new FormData();
    this.#trickle.begin();
    form.set("sdp", this.#peer.localDescription?.sdp ?? "");
    form.set("session", JSON.stringify(this.#settings));
    let response, text;
    try {
      response = await fetch(CALLS, {
        method: "POST",
        headers: this.#former ? { ...this.#headers(), [TOKEN]: this.#former } : this.#headers(),
        body: form,
        signal: AbortSignal.timeout(this.#former ? ANSWER_AGAIN_MS : ANSWER_MS),
      });
      text = await response.text();
    } catch (error) {
      throw new ServerUnreachable("no answer from the server", { cause: error });
    }
    if (!response.ok) throw refusal(response, text);
    this.token = response.headers.get(TOKEN);
    const location = response.headers.get("Location");
    if (location) {
      this.#resource = new URL(location, response.url);
      this.id = decodeURIComponent(this.#resource.pathname.split("/").pop() ?? "");
      const tag = response.headers.get("ETag");
      if (tag) this.#trickle.to(this.#resource, tag, () => this.#headers());
    }
    if (this.#isClosed) {
      this.#release();
      throw new HungUp("hung up");
    }
    return text;
  }

  /** Wait for media and the event channel. */
  async #connected() {
    if (this.#channel.readyState === "open") return;
    /** @type {number | undefined} */
    let timer;
    try {
      await new Promise((resolve, reject) => {
        this.#fail = reject;
        this.#channel.addEventListener("open", resolve);
        timer = window.setTimeout(() => reject(new NoMediaPath("no media path in time")), CONNECT_MS);
      });
    } finally {
      window.clearTimeout(timer);
      this.#fail = () => {};
    }
  }

  /** @param {unknown} data */
  #receive(data) {
    if (typeof data !== "string" || this.#isClosed) return;
    this.#noteLife();
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      console.warn("not JSON on the event channel");
      return;
    }
    if (typeof event?.type !== "string" || event.type === "visavis.pong") return;
    if (event.type === "visavis.camera.wanted") {
      this.#camera.want(event.fps);
      this.#screen.want(event.fps);
    }
    this.#tell("event", event);
  }

  #connectionChanged() {
    const state = this.#peer.connectionState;
    if (state === "failed") {
      if (this.#state === "opening") this.#fail(new NoMediaPath("ICE failed"));
      else this.#lose();
    } else if (state === "disconnected") {
      this.#setUnsteady(true);
    } else if (state === "connected") {
      this.#setUnsteady(false);
    }
  }

  #noteLife() {
    this.#heardAt = performance.now();
    this.#changedAt = 0;
    this.#known = false;
  }

  /** Look whether anything still arrives: ICE alone takes many seconds to notice a server that died. */
  #check() {
    const now = performance.now();
    const timestamp = this.#audio.receiver.getSynchronizationSources()[0]?.rtpTimestamp ?? -1;
    if (timestamp !== this.#timestamp) this.#noteLife();
    this.#timestamp = timestamp;
    const quietMs = now - this.#heardAt;
    // Of other servers it is not known what they make of a ping, nor how they are when they are silent.
    if (this.token && quietMs > QUIET_MS) this.send({ type: "visavis.ping" });
    if (this.#unsteadySince && now - this.#unsteadySince > UNSTEADY_MS) this.#lose();
    else if (this.#changedAt && now - this.#changedAt > CHANGED_MS) this.#lose();
    else if (this.token && this.#known && quietMs > ASTRAY_MS) this.#lose();
    else if (this.#unsteadySince || quietMs > DOUBT_MS) this.#askServer(now);
  }

  /**
   * A server may be silent, but then it knows of the call over HTTP; if it does not, the call is gone, and if nobody
   * answers, the server.
   * @param {number} now
   */
  async #askServer(now) {
    if (this.#asking || now - this.#askedAt < ASK_MS) return;
    this.#asking = true;
    try {
      const { status } = await fetch(this.#resource ?? CALLS, {
        headers: this.#headers(),
        cache: "no-store",
        signal: AbortSignal.timeout(ASK_MS),
      });
      if (GONE.includes(status)) this.#lose();
      else this.#known = true;
    } catch {
      // Unless only this was lost.
      if (performance.now() - this.#heardAt > DOUBT_MS) this.#lose();
    } finally {
      this.#asking = false;
      this.#askedAt = performance.now();
    }
  }

  /** @param {boolean} unsteady */
  #setUnsteady(unsteady) {
    if (unsteady === this.#unsteadySince > 0 || !this.isOpen) return;
    this.#unsteadySince = unsteady ? performance.now() : 0;
    this.#tell(unsteady ? "unsteady" : "steady");
  }

  #lose() {
    if (this.#state === "opening") return this.#fail(new NoMediaPath("the event channel closed"));
    if (!this.isOpen) return;
    // Who hangs up does not come back: with a token the server is left to notice, or told by the next call.
    if (this.token) this.#close();
    else this.hangUp();
    this.#tell("lost");
  }

  /**
   * @param {string} type
   * @param {unknown} [detail]
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/**
 * @param {Response} response
 * @param {string} text
 */
function refusal(response, text) {
  let message = "";
  let code = "";
  try {
    const { error } = JSON.parse(text);
    message = String(error?.message ?? "");
    code = String(error?.code ?? "");
  } catch {
    // A proxy between may answer with a page of its own.
  }
  const retry = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new CallRefused(response.status, message, code, Number.isNaN(retry) ? null : retry);
}
