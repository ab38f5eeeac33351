/** The state in words: shown at once, told to screen readers when it lasts. */

import { byId } from "./dom.js";

/** Screen readers hear of a state that lasts, not of each flicker; the voice itself tells the rest. */
const LASTING_MS = 1_200;

export class Status {
  #text = byId("state-text", HTMLElement);
  #announcer = byId("announcer", HTMLElement);
  #timer = 0;
  #quiet = false;

  /**
   * @param {string} words
   * @param {boolean} quiet nothing is read out now: a voice is to be heard, or the reader would be
   */
  show(words, quiet) {
    this.#quiet = quiet;
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
