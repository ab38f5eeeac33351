/** The state in words: shown at once, told to screen readers when it lasts. */

import { byId } from "./dom.js";

/** @typedef {import("./face.js").Look} Look */

/** @type {Record<Look, string>} */
const WORDS = {
  idle: "Ready when you are",
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  pondering: "Thinking it over",
  speaking: "Speaking",
  yielding: "Letting you speak",
  interrupted: "Interrupted",
  waiting: "Waiting to try again",
  trouble: "Something is wrong",
};

/** Nothing is read out now: a voice is to be heard, or the reader would be. @type {Set<Look>} */
const QUIET = new Set(["hearing", "speaking", "yielding", "interrupted"]);

/** Screen readers hear of a state that lasts, not of each flicker; the voice itself tells the rest. */
const LASTING_MS = 1_200;

export class Status {
  #text = byId("state-text", HTMLElement);
  #announcer = byId("announcer", HTMLElement);
  #timer = 0;
  #quiet = false;

  /**
   * @param {Look} look
   * @param {string | null} remark in place of the name of the state
   */
  show(look, remark) {
    const words = remark ?? WORDS[look];
    this.#quiet = QUIET.has(look);
    if (words === this.#text.textContent) return;
    this.#text.textContent = words;
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.announce(words), LASTING_MS);
  }

  /** Tell screen readers. @param {string} words */
  announce(words) {
    if (!this.#quiet) this.#announcer.textContent = words;
  }
}
