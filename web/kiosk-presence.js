/** Whether somebody is there: by motion before the camera, by speech, by touch. Pictures stay here. */

/** The picture is looked at this small: a person is still many cells, the noise of a dim camera is averaged away. */
const WIDTH = 48;
const HEIGHT = 27;
/** Of 255: by so much more than the whole picture a cell must have changed. Noise makes 3, a sleeve 40. */
const CHANGED = 16;
/** Share of the cells that change when somebody comes near; who passes at the far wall changes less. */
const COMES = 0.03;
/** And that tells that who came is there still: to breathe and to nod is enough. */
const STAYS = 0.004;
/** More than this is no person: the light was switched, or the camera was turned. */
const FLASH = 0.85;
/** Somebody comes if it moves in so many of the newest looks, at about five a second: not a bird, not a door. */
const LOOKS = 6;
const MOVING_LOOKS = 4;
/** So long motion alone keeps a call that nobody talks in: a fan, a screen behind, a queue of others. */
export const MOTION_ALONE_MS = 120_000;
/** After that, nothing that moves begins a call until it was still for so long. */
const STILL_MS = 5_000;

/** Looks at the camera's picture. */
export class Eye {
  #video = document.createElement("video");
  #canvas = new OffscreenCanvas(WIDTH, HEIGHT);
  #context = /** @type {OffscreenCanvasRenderingContext2D} */ (this.#canvas.getContext("2d", { willReadFrequently: true }));
  /** @type {Float32Array | null} */
  #before = null;

  constructor() {
    this.#video.muted = true;
    this.#video.playsInline = true;
  }

  /** @param {MediaStreamTrack | null} camera */
  set camera(camera) {
    this.#before = null;
    this.#video.srcObject = camera && new MediaStream([camera]);
    // Another track may take its place before the first picture.
    if (camera) this.#video.play().catch(() => {});
  }

  /** How much of the picture has changed since the last look, 0 to 1; null if there is nothing to compare. */
  look() {
    if (this.#video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) return null;
    this.#context.drawImage(this.#video, 0, 0, WIDTH, HEIGHT);
    const now = brightness(this.#context.getImageData(0, 0, WIDTH, HEIGHT).data);
    const share = this.#before && changedShare(this.#before, now);
    this.#before = now;
    return share;
  }
}

/** @param {Uint8ClampedArray} pixels RGBA */
function brightness(pixels) {
  const cells = new Float32Array(pixels.length / 4);
  for (let cell = 0; cell < cells.length; cell += 1) {
    const at = 4 * cell;
    cells[cell] = 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
  }
  return cells;
}

/**
 * The share of cells that have changed, beside what all of them have: clouds and the camera's own exposure.
 * @param {Float32Array} before
 * @param {Float32Array} now
 */
export function changedShare(before, now) {
  const changes = now.map((cell, at) => cell - before[at]);
  const common = changes.toSorted()[changes.length >> 1];
  let changed = 0;
  for (const change of changes) if (Math.abs(change - common) > CHANGED) changed += 1;
  const share = changed / changes.length;
  return share > FLASH ? 0 : share;
}

/** Tells from looks whether somebody comes or is there still; it takes more to come than to stay. */
export class Motion {
  /** @type {boolean[]} */
  #looks = [];
  #stillSince = 0;
  #distrusted = false;

  /**
   * @param {number} share as `Eye.look` gives it
   * @param {number} now milliseconds
   */
  receive(share, now) {
    this.#looks.push(share >= COMES);
    if (this.#looks.length > LOOKS) this.#looks.shift();
    if (share >= COMES) this.#stillSince = now;
    if (now - this.#stillSince >= STILL_MS) this.#distrusted = false;
    return share >= STAYS;
  }

  /** Whether somebody comes near. */
  get comes() {
    return !this.#distrusted && this.#looks.filter(Boolean).length >= MOVING_LOOKS;
  }

  /**
   * Begin anew; with `distrust` what moves now is nobody.
   * @param {number} now
   * @param {boolean} distrust
   */
  reset(now, distrust) {
    this.#looks = [];
    this.#stillSince = now;
    this.#distrusted = distrust;
  }
}

/** How long nobody has given a sign of being there. Times in milliseconds. */
export class Attendance {
  #sign;
  #word;

  /** @param {number} now */
  constructor(now) {
    this.#sign = this.#word = now;
  }

  /** Something moved. @param {number} now */
  moved(now) {
    if (now - this.#word < MOTION_ALONE_MS) this.#sign = now;
  }

  /** The person said something, or touched the screen. @param {number} now */
  spoke(now) {
    this.#sign = this.#word = now;
  }

  /** An answer is on its way or heard: who listens may sit still. @param {number} now */
  listened(now) {
    this.#sign = now;
  }

  /** @param {number} now */
  idleMs(now) {
    return now - this.#sign;
  }

  /** Whether nothing but motion has kept this call for too long. @param {number} now */
  isMotionAlone(now) {
    return now - this.#word >= MOTION_ALONE_MS;
  }
}
