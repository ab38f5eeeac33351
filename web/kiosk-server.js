/** The device's side of `/v1/kiosk`: it is let in once, asks what to go by, and gets what it calls with. */

/**
 * @typedef {object} Settings
 * @property {string | null} language
 * @property {number} idle_s
 * @property {number} volume 0 to 1
 * @property {string} title
 * @property {string} text
 * @property {"motion" | "touch"} wake
 */
/** @typedef {{settings: Settings, session: object, version: string, device: {id: string, name: string}}} Told */
/** @typedef {{code: string, qr: string, url: string}} Pairing the code, as text and in a picture (its address), and where to type it */

const API = "/v1/kiosk";
const TOKEN = "visavis.kiosk";
const ANSWER_MS = 8_000;
/** Waits after each failure, the last one for ever; up to a third more or less, so that not all screens ask at once. */
const BACKOFF_S = [1, 2, 4, 8, 15];
const JITTER = 0.33;
/** One lost answer is nothing to show. */
const FAILURES_SHOWN = 2;
/** What a device calls with is asked for anew when so little of its time is left. */
const SPARE_MS = 30_000;

class NoAnswer extends Error {
  /**
   * @param {string} message
   * @param {number | null} retryAfterS
   * @param {boolean} switchedOff
   */
  constructor(message, retryAfterS = null, switchedOff = false) {
    super(message);
    this.name = "NoAnswer";
    this.retryAfterS = retryAfterS;
    this.switchedOff = switchedOff;
  }
}

/**
 * Events: `pairing` (detail: Pairing) when a code is to be shown, `told` (detail: Told) when what to go by is new,
 * `offline` (detail: {until, switchedOff}) at each failure that matters, `online` when that is over.
 */
export class KioskServer extends EventTarget {
  /** @type {string | null} */
  #token = localStorage.getItem(TOKEN);
  /** The device waits to be let in, with a code on its screen. */
  #wanting = false;
  #expiresAt = 0;
  #tag = "";
  #failures = 0;
  #secret = { value: "", until: 0 };
  #pollS = 5;
  /** Ends the present wait. */
  #wake = () => {};
  /** What the device does, for the operator to see. */
  doing = "starting";

  get reachable() {
    return this.#failures < FAILURES_SHOWN;
  }

  /** Ask for ever. */
  async run() {
    window.addEventListener("online", () => this.askNow());
    for (;;) {
      let waitS;
      try {
        waitS = await this.#ask();
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
        waitS = this.#failed(error);
      }
      await this.#wait(waitS);
    }
  }

  /** Do not wait for the next time. */
  askNow() {
    this.#wake();
  }

  /** What to call with; null if the device may not call, or nobody answers. @returns {Promise<string | null>} */
  async secret() {
    if (performance.now() < this.#secret.until) return this.#secret.value;
    try {
      const response = await this.#fetch("session", { method: "POST" });
      if (!response.ok) return null;
      const { value, expires_in_s } = await response.json();
      this.#secret = { value, until: performance.now() + Math.max(expires_in_s * 500, expires_in_s * 1000 - SPARE_MS) };
      return value;
    } catch (error) {
      if (error instanceof NoAnswer) return null;
      throw error;
    }
  }

  /** What was given is not taken any more. */
  forgetSecret() {
    this.#secret = { value: "", until: 0 };
  }

  /** @returns {Promise<number>} seconds until the next time */
  async #ask() {
    if (!this.#token || (this.#wanting && performance.now() > this.#expiresAt)) return this.#begin();
    const response = await this.#fetch(`device?doing=${this.doing}`, { headers: { "If-None-Match": this.#tag } });
    switch (response.status) {
      case 200:
        this.#reached();
        return this.#receive(await response.json(), response.headers.get("ETag") ?? "");
      case 202:
        this.#reached();
        // After a reload nobody knows the code any more: another one.
        return this.#wanting ? (await response.json()).poll_s : this.#begin();
      case 304:
        this.#reached();
        return this.#pollS;
      case 401:
        return this.#begin();
      default:
        throw failure(response);
    }
  }

  /**
   * @param {any} told
   * @param {string} tag
   */
  #receive(told, tag) {
    this.#tag = tag;
    this.#wanting = false;
    this.#pollS = told.poll_s;
    this.#tell("told", told);
    return told.poll_s;
  }

  /** Ask to be let in. */
  async #begin() {
    this.#token = null;
    localStorage.removeItem(TOKEN);
    this.forgetSecret();
    this.#tag = "";
    const response = await this.#fetch("pairing", { method: "POST" });
    if (!response.ok) throw failure(response);
    this.#reached();
    const { token, code, qr, url, expires_in_s, poll_s } = await response.json();
    this.#token = token;
    // It is worth something from the moment that the code is approved, whether or not this page lives then.
    localStorage.setItem(TOKEN, token);
    this.#wanting = true;
    this.#expiresAt = performance.now() + expires_in_s * 1000;
    this.#tell("pairing", { code, qr, url });
    return poll_s;
  }

  /**
   * @param {string} path
   * @param {RequestInit} options
   */
  async #fetch(path, options) {
    const headers = { ...options.headers, ...(this.#token && { Authorization: `Bearer ${this.#token}` }) };
    const signal = AbortSignal.timeout(ANSWER_MS);
    try {
      return await fetch(`${API}/${path}`, { ...options, headers, signal, cache: "no-store" });
    } catch (error) {
      throw new NoAnswer(error instanceof Error ? error.message : "no answer");
    }
  }

  #reached() {
    const wasOffline = !this.reachable;
    this.#failures = 0;
    if (wasOffline) this.#tell("online");
  }

  /** @param {NoAnswer} error @returns {number} seconds until the next try */
  #failed(error) {
    const step = BACKOFF_S[Math.min(this.#failures, BACKOFF_S.length - 1)];
    const waitS = error.retryAfterS ?? step * (1 + JITTER * (2 * Math.random() - 1));
    this.#failures += 1;
    console.info("kiosk: no answer:", error.message);
    if (!this.reachable || error.switchedOff) {
      this.#failures = Math.max(this.#failures, FAILURES_SHOWN);
      this.#tell("offline", { until: performance.now() + waitS * 1000, switchedOff: error.switchedOff });
    }
    return waitS;
  }

  /** @param {number} seconds */
  async #wait(seconds) {
    /** @type {number | undefined} */
    let timer;
    await new Promise((resolve) => {
      this.#wake = () => resolve(null);
      timer = window.setTimeout(resolve, seconds * 1000);
    });
    window.clearTimeout(timer);
  }

  /**
   * @param {string} type
   * @param {unknown} [detail]
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** @param {Response} response */
function failure(response) {
  const retry = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new NoAnswer(`status ${response.status}`, Number.isNaN(retry) ? null : retry, response.status === 404);
}
