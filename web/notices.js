/** Messages over the stage: what is wrong, what to do, and a button that does it. */

import { make } from "./dom.js";

/** @typedef {import("./problems.js").Explanation} Explanation */

/**
 * @typedef {object} Notice
 * @property {string} title
 * @property {string} advice
 * @property {Record<string, () => void>} [actions] what each button does, by its words
 * @property {boolean} [lasting] it cannot be dismissed: it goes when its cause does
 */

export class Notices {
  #region;
  /** @type {Map<string, {box: HTMLElement, advice: HTMLElement}>} */
  #shown = new Map();

  /** @param {HTMLElement} region a live region, so that each new message is read out once */
  constructor(region) {
    this.#region = region;
  }

  /** Titles of what is shown. */
  get all() {
    return [...this.#shown.values()].map(({ box }) => box.querySelector("h2")?.textContent ?? "");
  }

  /**
   * Show a notice in place of the one of the same key.
   * @param {string} key
   * @param {Notice} notice
   */
  show(key, { title, advice, actions = {}, lasting = false }) {
    const text = make("p", {}, advice);
    const box = make("div", { class: "notice" }, make("h2", {}, title), text);
    const buttons = make("div", { class: "actions" });
    for (const [words, action] of Object.entries(actions)) {
      const button = make("button", { type: "button" }, words);
      button.addEventListener("click", action);
      buttons.append(button);
    }
    if (!lasting) {
      const dismiss = make("button", { type: "button", class: "quiet" }, "Dismiss");
      dismiss.addEventListener("click", () => this.hide(key));
      buttons.append(dismiss);
    }
    box.append(buttons);
    this.hide(key);
    this.#shown.set(key, { box, advice: text });
    this.#region.append(box);
  }

  /**
   * Change the advice, as a countdown does, without reading it out again.
   * @param {string} key
   * @param {string} advice
   */
  update(key, advice) {
    const notice = this.#shown.get(key);
    if (!notice) return;
    notice.advice.setAttribute("aria-live", "off");
    notice.advice.textContent = advice;
  }

  /** @param {...string} keys */
  hide(...keys) {
    for (const key of keys) {
      this.#shown.get(key)?.box.remove();
      this.#shown.delete(key);
    }
  }

  clear() {
    this.hide(...this.#shown.keys());
  }
}
