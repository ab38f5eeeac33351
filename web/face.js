/** The assistant's face: its form follows the state of the call, and it moves with the voices. */

import { byId } from "./dom.js";

/**
 * idle: asleep · connecting: waking, an arc runs round · listening: eyes open · hearing: leans in, rings follow the caller's voice ·
 * thinking: looks up, an arc runs round · pondering: the same, in no hurry · speaking: the mouth follows the voice ·
 * yielding: leans in, the mouth waits half open, rings follow the caller's voice · interrupted: a small round mouth · waiting: an arc, eyes half closed · trouble: a flat look.
 * @typedef {"idle" | "connecting" | import("./floor.js").FloorState | "waiting" | "trouble"} Look
 */

/** Whose loudness the face moves with. @type {Partial<Record<Look, "microphone" | "voice">>} */
export const FOLLOWED = { hearing: "microphone", yielding: "microphone", interrupted: "microphone", speaking: "voice" };

/** Loudness falls slower than it rises, as a needle does: jumps look nervous. */
const FALL = 0.82;

export class Face {
  #element = byId("face", HTMLElement);
  #level = 0;

  /** @param {Look} look */
  set look(look) {
    document.body.dataset.state = look;
  }

  /** Loudness from 0 to 1 of whoever has the floor. @param {number} level */
  set level(level) {
    const eased = Math.max(level, this.#level * FALL);
    const next = eased < 0.01 ? 0 : eased;
    if (next === this.#level) return;
    this.#level = next;
    this.#element.style.setProperty("--level", next.toFixed(3));
  }
}
