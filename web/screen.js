/** The person's screen, a window or a tab of it, as long as they share it. */

/** Enough to read small print; changes on it are seen within a second. */
const SCREEN = { width: { max: 1920 }, height: { max: 1080 }, frameRate: { max: 5 } };

/** Whether this browser can share a screen: those of phones cannot. */
export function canShareScreen() {
  // Typed as always there; over plain http from another machine it is not.
  return "getDisplayMedia" in (/** @type {MediaDevices | undefined} */ (navigator.mediaDevices) ?? {});
}

/** Events: `changed` when sharing began or ended. */
export class SharedScreen extends EventTarget {
  /** @type {MediaStreamTrack | null} */
  #track = null;
  /** Counts endings, so that what is granted after one is let go at once. */
  #endings = 0;

  get track() {
    return this.#track;
  }

  /** Ask what to share and begin; a person who thinks better of it changes nothing. */
  async share() {
    const endings = this.#endings;
    /** @type {MediaStream} */
    let stream;
    try {
      stream = await navigator.mediaDevices.getDisplayMedia({ video: SCREEN, audio: false });
    } catch (error) {
      console.info("no screen is shared:", error);
      return;
    }
    const [track] = stream.getVideoTracks();
    if (endings !== this.#endings) {
      track.stop();
      return;
    }
    this.#track?.stop();
    this.#track = track;
    // The browser has a button of its own to end it.
    track.addEventListener("ended", () => this.#track === track && this.end());
    this.dispatchEvent(new Event("changed"));
  }

  end() {
    this.#endings += 1;
    if (!this.#track) return;
    this.#track.stop();
    this.#track = null;
    this.dispatchEvent(new Event("changed"));
  }
}
