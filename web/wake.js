/** Keeps the screen on: a phone that dims its screen would end the call. */

export class ScreenLight {
  #wanted = false;
  /** @type {WakeLockSentinel | null} */
  #lock = null;

  constructor() {
    // The system takes the lock away from a page that is hidden.
    document.addEventListener("visibilitychange", () => this.#take());
  }

  /** @param {boolean} wanted */
  set kept(wanted) {
    this.#wanted = wanted;
    if (wanted) void this.#take();
    else void this.#lock?.release();
  }

  async #take() {
    if (!this.#wanted || document.visibilityState !== "visible" || this.#lock?.released === false) return;
    try {
      this.#lock = await navigator.wakeLock.request("screen");
      if (!this.#wanted) await this.#lock.release();
    } catch {
      // Not offered, or the battery is low: the call goes on without.
    }
  }
}
