/** Microphones, cameras and speakers: what there is, opening them, and the tracks in use. */

/** @typedef {"microphone" | "camera"} Device */
/** @typedef {"denied" | "missing" | "busy" | "insecure" | "unsupported" | "failed"} Reason */
/** @typedef {{devices: Device[], reason: Reason}} DeviceProblem */
/** @typedef {{id: string, label: string}} Choice */
/**
 * @typedef {object} Capture
 * @property {MediaStreamTrack | null} microphone
 * @property {MediaStreamTrack | null} camera
 * @property {Map<Reason, Device[]>} problems what could not be had, and why
 */

const MICROPHONE = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
/** Enough to read a page held up to it; more would be scaled down before the model sees it. */
const CAMERA = { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 15 } };

/** @type {Record<string, Reason>} */
const REASONS = {
  NotAllowedError: "denied",
  SecurityError: "denied",
  NotFoundError: "missing",
  OverconstrainedError: "missing",
  NotReadableError: "busy",
  AbortError: "busy",
};

/**
 * The microphone and camera in use. Events: `changed` (detail: Device) when a track came or went, `problem` (detail: DeviceProblem).
 */
export class Devices extends EventTarget {
  /** @type {Record<Device, MediaStreamTrack | null>} */
  #tracks = { microphone: null, camera: null };
  #muted = false;
  #asking = false;
  /** Counts closings, so that a device which opens after one is let go at once. */
  #closings = 0;

  get microphone() {
    return this.#tracks.microphone;
  }

  get camera() {
    return this.#tracks.camera;
  }

  /** Whether the browser is asking the person for permission now. */
  get asking() {
    return this.#asking;
  }

  /** A muted microphone sends silence, and stays muted when it is changed for another. */
  get muted() {
    return this.#muted;
  }

  set muted(muted) {
    this.#muted = muted;
    if (this.microphone) this.microphone.enabled = !muted;
  }

  /**
   * Open devices in place of those in use, preferring the given ids; never throws.
   * @param {Partial<Record<Device, string>>} wanted device to its id, "" for any
   */
  async open(wanted) {
    const closings = this.#closings;
    const devices = /** @type {Device[]} */ (Object.keys(wanted));
    const states = await Promise.all(devices.map(permission));
    this.#asking = states.includes("prompt");
    if (this.#asking) this.#tell("changed", devices[0]);
    const { microphone, camera, problems } = await capture(wanted);
    this.#asking = false;
    for (const track of [microphone, camera]) {
      if (track && closings !== this.#closings) track.stop();
    }
    if (closings !== this.#closings) return;
    if (microphone) this.#use("microphone", microphone);
    if (camera) this.#use("camera", camera);
    for (const [reason, failed] of problems) this.#tell("problem", { devices: failed, reason });
  }

  /** @param {Device} device */
  close(device) {
    if (this.#tracks[device]) this.#use(device, null);
  }

  closeAll() {
    this.#closings += 1;
    this.close("microphone");
    this.close("camera");
  }

  /**
   * @param {Device} device
   * @param {MediaStreamTrack | null} track
   */
  #use(device, track) {
    this.#tracks[device]?.stop();
    this.#tracks[device] = track;
    if (track) {
      if (device === "microphone") track.enabled = !this.#muted;
      track.addEventListener("ended", () => this.#ended(device, track));
    }
    this.#tell("changed", device);
  }

  /**
   * A device was unplugged, or taken away in the browser's own permissions. Another microphone is looked for at once.
   * @param {Device} device
   * @param {MediaStreamTrack} track
   */
  #ended(device, track) {
    if (track !== this.#tracks[device]) return;
    this.#use(device, null);
    if (device === "microphone") void this.open({ microphone: "" });
    else this.#tell("problem", { devices: [device], reason: "missing" });
  }

  /**
   * @param {string} type
   * @param {Device | DeviceProblem} detail
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** Why no device can be opened at all, or null. */
export function obstacle() {
  // Typed as always there; over plain http from another machine it is not.
  if (/** @type {MediaDevices | undefined} */ (navigator.mediaDevices)) return null;
  return window.isSecureContext ? "unsupported" : "insecure";
}

/**
 * Open the microphone, the camera or both, preferring the devices of the given ids. One permission prompt where possible; what cannot
 * be had is told in `problems`, never thrown.
 * @param {Partial<Record<Device, string>>} wanted device to its id, "" for any
 * @returns {Promise<Capture>}
 */
async function capture(wanted) {
  /** @type {Capture} */
  const result = { microphone: null, camera: null, problems: new Map() };
  let devices = /** @type {Device[]} */ (Object.keys(wanted));
  const none = obstacle();
  if (none) {
    result.problems.set(none, devices);
    return result;
  }
  const present = await listDevices();
  devices = devices.filter((device) => {
    if (present[device].length) return true;
    note(device, "missing", result);
    return false;
  });
  if (devices.length === 0) return result;
  try {
    take(await open(devices, wanted), result);
  } catch (error) {
    if (devices.length === 1) note(devices[0], reasonOf(error), result);
    // Together they failed; one of them may well work, but a refusal is not asked about again.
    else for (const device of devices) await openOne(device, wanted, error, result);
  }
  return result;
}

/**
 * @param {Device} device
 * @param {Partial<Record<Device, string>>} wanted
 * @param {unknown} error why both together failed
 * @param {Capture} result
 */
async function openOne(device, wanted, error, result) {
  if (reasonOf(error) === "denied" && (await permission(device)) !== "granted") {
    note(device, "denied", result);
    return;
  }
  try {
    take(await open([device], wanted), result);
  } catch (single) {
    note(device, reasonOf(single), result);
  }
}

/**
 * @param {Device[]} devices
 * @param {Partial<Record<Device, string>>} wanted
 */
function open(devices, wanted) {
  /** @type {MediaStreamConstraints} */
  const constraints = {};
  // Ids are a preference: a headset that was unplugged is no reason to fail.
  if (devices.includes("microphone")) constraints.audio = { ...MICROPHONE, ...prefer(wanted.microphone) };
  if (devices.includes("camera")) {
    constraints.video = { ...CAMERA, ...(wanted.camera ? prefer(wanted.camera) : { facingMode: "user" }) };
  }
  return navigator.mediaDevices.getUserMedia(constraints);
}

/** @param {string | undefined} id */
function prefer(id) {
  return id ? { deviceId: { ideal: id } } : {};
}

/**
 * @param {MediaStream} stream
 * @param {Capture} result
 */
function take(stream, result) {
  result.microphone ??= stream.getAudioTracks()[0] ?? null;
  result.camera ??= stream.getVideoTracks()[0] ?? null;
}

/**
 * @param {Device} device
 * @param {Reason} reason
 * @param {Capture} result
 */
function note(device, reason, { problems }) {
  problems.set(reason, [...(problems.get(reason) ?? []), device]);
}

/** @param {unknown} error */
function reasonOf(error) {
  return (error instanceof DOMException && REASONS[error.name]) || "failed";
}

/** @param {Device} device */
async function permission(device) {
  try {
    return (await navigator.permissions.query({ name: /** @type {PermissionName} */ (device) })).state;
  } catch {
    return "prompt"; // Not every browser tells.
  }
}

/**
 * What is plugged in. Before permission is given, browsers tell only whether there is any: one choice without a name.
 * @returns {Promise<{microphone: Choice[], camera: Choice[], speaker: Choice[]}>}
 */
export async function listDevices() {
  /** @type {{microphone: Choice[], camera: Choice[], speaker: Choice[]}} */
  const found = { microphone: [], camera: [], speaker: [] };
  const kinds = { audioinput: found.microphone, videoinput: found.camera, audiooutput: found.speaker };
  const names = { audioinput: "Microphone", videoinput: "Camera", audiooutput: "Speaker" };
  for (const { kind, deviceId, label } of (await navigator.mediaDevices?.enumerateDevices?.()) ?? []) {
    const list = kinds[kind];
    list.push({ id: deviceId, label: label || (deviceId ? `${names[kind]} ${list.length + 1}` : `Default ${names[kind].toLowerCase()}`) });
  }
  return found;
}

/** Whether the page may choose where sound comes out. */
export function canChooseSpeaker() {
  return "setSinkId" in HTMLMediaElement.prototype;
}
