/** Trying until a call stands: what each failure means, how long to wait, when to stop. */

import { CallRefused, HungUp, NoMediaPath, ServerUnreachable } from "./call.js";
import { onNetworkChange } from "./network.js";
import { explainRefusal, NO_MEDIA_PATH } from "./problems.js";

/** @typedef {import("./call.js").Call} Call */
/** @typedef {import("./notices.js").Notices} Notices */
/** @typedef {import("./problems.js").Explanation} Explanation */

/** Waits before each new attempt, the last one for ever; after a loss the first is made at once. */
const BACKOFF_S = [0.5, 1, 2, 4, 8, 15];
/** Each takes up to so much longer: those who were lost together do not all come back together. */
const SPREAD = 0.5;
/** How long a full server is left alone when it does not say. */
const BUSY_S = 10;
/** Calls without a media path after a loss, before we stop and say why. */
const PATH_ATTEMPTS = 3;
const NOTICE = "retry";

/** The session cannot go on. */
export class GivenUp extends Error {
  /** @param {Explanation} explanation what to tell the person */
  constructor(explanation) {
    super(explanation.title);
    this.name = "GivenUp";
    this.explanation = explanation;
  }
}

export class Dialer {
  #makeCall;
  #notices;
  #askKey;
  #onWaiting;

  /**
   * @param {object} parts
   * @param {() => Call} parts.makeCall a new call, not opened yet
   * @param {Notices} parts.notices
   * @param {(reason: string) => Promise<boolean>} parts.askKey ask the person for a key; false if there is none
   * @param {(waiting: boolean) => void} parts.onWaiting told when waiting begins, and when the next attempt does
   */
  constructor({ makeCall, notices, askKey, onWaiting }) {
    this.#makeCall = makeCall;
    this.#notices = notices;
    this.#askKey = askKey;
    this.#onWaiting = onWaiting;
  }

  /**
   * Make calls until one stands. Rejects with GivenUp if none will, with HungUp if `signal` ends it or no key is given.
   * @param {AbortSignal} signal
   * @param {boolean} again after a call was lost, which is waited for longer
   */
  async dial(signal, again) {
    let withoutPath = 0;
    for (let attempt = 0; ; attempt += 1) {
      try {
        const call = this.#makeCall();
        await call.open();
        this.#notices.hide(NOTICE);
        return call;
      } catch (error) {
        if (signal.aborted) throw new HungUp("hung up", { cause: error });
        if (error instanceof NoMediaPath) withoutPath += 1;
        const hopeless = error instanceof NoMediaPath && (!again || withoutPath === PATH_ATTEMPTS);
        if (hopeless) throw new GivenUp(NO_MEDIA_PATH);
        await this.#prepareNext(error, attempt, signal);
      }
    }
  }

  /**
   * Do what makes another attempt sensible, or throw.
   * @param {unknown} error
   * @param {number} attempt
   * @param {AbortSignal} signal
   */
  async #prepareNext(error, attempt, signal) {
    const backoff = BACKOFF_S[Math.min(attempt, BACKOFF_S.length - 1)] * (1 + SPREAD * Math.random());
    if (error instanceof NoMediaPath) return this.#countDown(NO_MEDIA_PATH, backoff, signal);
    if (error instanceof ServerUnreachable) {
      const advice = "Is it running, and is this device online?";
      return this.#countDown({ title: "The server does not answer", advice }, backoff, signal);
    }
    if (!(error instanceof CallRefused)) throw error;
    if (error.status === 401) {
      if (await this.#askKey(error.message)) return;
      throw new HungUp("no key");
    }
    const wait = error.retryAfterS ?? (error.status === 503 ? BUSY_S : backoff);
    if (error.status === 429 || error.status >= 500) return this.#countDown(explainRefusal(error), wait, signal);
    throw new GivenUp(explainRefusal(error));
  }

  /**
   * Wait under a notice that counts down; sooner over when asked for, when back online, or with `signal`, and then it throws.
   * @param {Explanation} explanation
   * @param {number} seconds
   * @param {AbortSignal} signal
   */
  async #countDown({ title, advice }, seconds, signal) {
    this.#onWaiting(true);
    const until = performance.now() + seconds * 1000;
    const words = () => `${advice} Next try in ${Math.max(1, Math.ceil((until - performance.now()) / 1000))} s.`;
    const done = new AbortController();
    /** @type {number | undefined} */
    let timer;
    await new Promise((resolve) => {
      const now = () => resolve(null);
      this.#notices.show(NOTICE, { title, advice: words(), actions: { "Try now": now }, lasting: true });
      timer = window.setInterval(() => {
        if (performance.now() >= until) now();
        else this.#notices.update(NOTICE, words());
      }, 250);
      signal.addEventListener("abort", now, { signal: done.signal });
      onNetworkChange(now, done.signal);
      if (signal.aborted) now();
    });
    done.abort();
    window.clearInterval(timer);
    if (signal.aborted) throw new HungUp("hung up");
    this.#notices.update(NOTICE, `${advice} Trying now.`);
    this.#onWaiting(false);
  }
}
