/** Notices that the page is not what it should be, and has it loaded anew. */

/** The page did nothing for so long: it was frozen, or the device slept. What was open may be dead without a word. */
const FROZEN_MS = 20_000;
/** A call that connects, or thinks, for so long does neither. */
const STUCK_MS = 90_000;
/** Share of the memory that the browser gives, above which the page is loaded anew while nobody is there. */
const MEMORY = 0.7;
/** Once a day, while nobody is there: what leaks slowly never adds up. */
const OLD_MS = 24 * 3_600_000;
/** A page that needs it more often is not helped by it. */
const RELOAD_PAUSE_MS = 60_000;
const RELOADED = "visavis.kiosk.reloaded";

export class Watchdog {
  #born = performance.now();
  #beat = performance.now();
  #stuck = { on: "", since: 0 };
  /** When the page met an error that nothing caught; 0: it has not. */
  #failed = 0;
  /** @type {string | null} */
  #version = null;
  #outdated = false;

  constructor() {
    for (const type of ["error", "unhandledrejection"]) {
      window.addEventListener(type, () => (this.#failed ||= performance.now()));
    }
  }

  /** The server's version: a page of another one is old. @param {string} version */
  set version(version) {
    this.#version ??= version;
    this.#outdated = version !== this.#version;
  }

  /**
   * To be called some times a second; why the page should be loaded anew, or null.
   * @param {number} now
   * @param {boolean} idle nobody is there
   */
  fault(now, idle) {
    const pause = now - this.#beat;
    this.#beat = now;
    // A hidden page is slowed down by the browser.
    if (pause > FROZEN_MS && document.visibilityState === "visible") return "it was frozen";
    if (this.#failed && (idle || now - this.#failed > STUCK_MS)) return "it has met an error";
    if (!idle) return null;
    if (this.#outdated) return "the server has another one";
    if (now - this.#born > OLD_MS) return "it is a day old";
    return memoryShare() > MEMORY ? "it takes too much memory" : null;
  }

  /**
   * Whether a call has been doing the same for too long; "" is what may last.
   * @param {string} on
   * @param {number} now
   */
  isStuck(on, now) {
    if (on !== this.#stuck.on) this.#stuck = { on, since: now };
    return on !== "" && now - this.#stuck.since > STUCK_MS;
  }

  /** @param {string} why */
  reload(why) {
    const last = Number(sessionStorage.getItem(RELOADED));
    if (Date.now() - last < RELOAD_PAUSE_MS) return;
    sessionStorage.setItem(RELOADED, String(Date.now()));
    console.info("kiosk: the page is loaded anew:", why);
    location.reload();
  }
}

/** Chromium alone tells. */
function memoryShare() {
  const { memory } = /** @type {{memory?: {usedJSHeapSize: number, jsHeapSizeLimit: number}}} */ (performance);
  return memory ? memory.usedJSHeapSize / memory.jsHeapSizeLimit : 0;
}
