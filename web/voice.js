/** The assistant's voice: where it comes out, and what to do if the browser holds it back. */

import { byId } from "./dom.js";

/** Events: `blocked` when the browser wants a gesture first, `playing` when the voice can be heard. */
export class Voice extends EventTarget {
  #element = byId("voice", HTMLAudioElement);

  constructor() {
    super();
    // A phone may pause the voice of a hidden page, and lets it go on when the page is seen or touched again.
    document.addEventListener("visibilitychange", () => this.#goOn());
    document.addEventListener("pointerup", () => this.#goOn());
  }

  /** @param {MediaStream} stream */
  async play(stream) {
    useAudioSession("play-and-record");
    this.#element.srcObject = stream;
    try {
      await this.#element.play();
      this.dispatchEvent(new Event("playing"));
    } catch (error) {
      // Other failures mean that another stream, or none, has taken its place.
      if (error instanceof DOMException && error.name === "NotAllowedError") this.dispatchEvent(new Event("blocked"));
    }
  }

  /** Play after a gesture what was held back. */
  async retry() {
    const stream = this.#element.srcObject;
    if (stream instanceof MediaStream) await this.play(stream);
  }

  stop() {
    this.#element.srcObject = null;
    useAudioSession("auto");
  }

  #goOn() {
    if (document.visibilityState === "visible" && this.#element.paused) void this.retry();
  }

  /** Let it come out of a certain speaker; false if that cannot be used. @param {string} id */
  async useSpeaker(id) {
    try {
      await this.#element.setSinkId(id);
      return true;
    } catch {
      return false;
    }
  }
}

/**
 * Tell an iPhone that this is a call: its mute switch then leaves the voice alone. Other browsers have no such thing.
 *
 * @param {"auto" | "play-and-record"} type
 */
function useAudioSession(type) {
  if ("audioSession" in navigator) Object.assign(/** @type {object} */ (navigator.audioSession), { type });
}
