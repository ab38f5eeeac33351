/** Buttons, text box, device choices, key dialog and keys: turns what the person does into events. */

import { canChooseSpeaker } from "./devices.js";
import { byId, make } from "./dom.js";
import { canShareScreen } from "./screen.js";
import { isTurnChoice } from "./turns.js";

/** @typedef {import("./devices.js").Choice} Choice */
/** @typedef {"microphone" | "camera" | "speaker"} ChoiceName */
/** @typedef {import("./turns.js").TurnChoice} TurnChoice */

const CHOICES = /** @type {const} */ (["microphone", "camera", "speaker"]);
const STORED = "visavis.devices";

/** Events: `start`, `hangup`, `mute`, `camera`, `share`, `interrupt`, `text` (detail: string), `device` (detail: Device), `speaker`, `turns`. */
export class Controls extends EventTarget {
  #start = byId("start", HTMLButtonElement);
  #mute = byId("mute", HTMLButtonElement);
  #camera = byId("camera", HTMLButtonElement);
  #share = byId("share", HTMLButtonElement);
  #interrupt = byId("interrupt", HTMLButtonElement);
  #text = byId("text", HTMLInputElement);
  #send = byId("send", HTMLButtonElement);
  #devices = byId("devices-dialog", HTMLDialogElement);
  #keyDialog = byId("key-dialog", HTMLDialogElement);
  #key = byId("key", HTMLInputElement);
  #keyReason = byId("key-reason", HTMLElement);
  #wantsCamera = byId("wants-camera", HTMLInputElement);
  #selects = {
    microphone: byId("choice-microphone", HTMLSelectElement),
    camera: byId("choice-camera", HTMLSelectElement),
    speaker: byId("choice-speaker", HTMLSelectElement),
  };
  #turns = byId("choice-turns", HTMLSelectElement);
  /** Ids, whether the camera is wanted and when a turn is over, kept for the next visit. @type {Record<string, string>} */
  #stored = readStored();

  constructor() {
    super();
    this.#on(this.#start, "start");
    this.#on(byId("hangup", HTMLButtonElement), "hangup");
    this.#on(this.#mute, "mute");
    this.#on(this.#camera, "camera");
    this.#on(this.#share, "share");
    this.#share.hidden = !canShareScreen();
    this.#on(this.#interrupt, "interrupt");
    for (const id of ["devices", "devices-early"]) {
      byId(id, HTMLButtonElement).addEventListener("click", () => this.#devices.showModal());
    }
    for (const name of CHOICES) {
      this.#selects[name].addEventListener("change", () => {
        this.#store(name, this.#selects[name].value);
        this.#tell(name === "speaker" ? name : "device", name);
      });
    }
    this.#wantsCamera.checked = this.#stored.wantsCamera !== "no";
    this.#wantsCamera.addEventListener("change", () => this.#store("wantsCamera", this.#wantsCamera.checked ? "yes" : "no"));
    if (this.turns) this.showTurns(this.turns);
    this.#turns.addEventListener("change", () => {
      this.#store("turns", this.#turns.value);
      this.#tell("turns");
    });
    byId("compose", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.#text.value.trim();
      if (!text || this.#send.disabled) return;
      this.#text.value = "";
      this.#tell("text", text);
    });
    byId("no-key", HTMLButtonElement).addEventListener("click", () => this.#keyDialog.close());
    document.addEventListener("keydown", (event) => this.#keyDown(event));
  }

  get cameraWanted() {
    return this.#wantsCamera.checked;
  }

  set cameraWanted(wanted) {
    this.#wantsCamera.checked = wanted;
    this.#store("wantsCamera", wanted ? "yes" : "no");
  }

  /** How the person wants turns to end; null if that was never chosen. @returns {TurnChoice | null} */
  get turns() {
    const { turns } = this.#stored;
    return isTurnChoice(turns) ? turns : null;
  }

  /** Show how turns end. @param {TurnChoice} choice */
  showTurns(choice) {
    this.#turns.value = choice;
  }

  /**
   * The id of the chosen device, "" for any.
   * @param {ChoiceName} name
   */
  chosen(name) {
    return this.#stored[name] ?? "";
  }

  /** @param {Record<ChoiceName, Choice[]>} choices */
  showChoices(choices) {
    for (const name of CHOICES) {
      const select = this.#selects[name];
      const list = choices[name];
      const chosen = this.chosen(name);
      select.replaceChildren(...list.map(({ id, label }) => make("option", { value: id }, label)));
      if (list.some(({ id }) => id === chosen)) select.value = chosen;
      select.disabled = list.length === 0;
      if (list.length === 0) select.append(make("option", {}, `No ${name} found`));
    }
    byId("field-speaker", HTMLElement).hidden = !canChooseSpeaker() || choices.speaker.length === 0;
  }

  /**
   * @param {object} state
   * @param {"idle" | "connecting" | "live" | "waiting" | "ended"} state.phase
   * @param {boolean} state.muted
   * @param {boolean} state.pressToTalk
   * @param {boolean} state.hasMicrophone
   * @param {boolean} state.hasCamera
   * @param {boolean} state.sharesScreen
   * @param {boolean} state.interruptible
   * @param {boolean} state.hasCaptions
   */
  show({ phase, muted, pressToTalk, hasMicrophone, hasCamera, sharesScreen, interruptible, hasCaptions }) {
    const inSession = phase !== "idle" && phase !== "ended";
    const hadFocus = document.activeElement;
    this.#start.hidden = inSession;
    setWords(this.#start, phase === "ended" ? "Start a new call" : "Start the call");
    byId("welcome", HTMLElement).hidden = phase !== "idle" || hasCaptions;
    byId("devices-early", HTMLElement).hidden = inSession;
    byId("controls", HTMLElement).hidden = !inSession;
    byId("talk", HTMLElement).hidden = !inSession && !hasCaptions;
    byId("compose", HTMLElement).hidden = !inSession;
    byId("self", HTMLElement).hidden = !hasCamera;
    this.#mute.disabled = !hasMicrophone;
    this.#mute.classList.toggle("off", muted || !hasMicrophone);
    if (pressToTalk) setWords(this.#mute, muted ? "Talk" : "Send");
    else setWords(this.#mute, muted ? "Unmute" : "Mute");
    this.#camera.classList.toggle("off", !hasCamera);
    this.#camera.setAttribute("aria-pressed", String(hasCamera));
    this.#share.setAttribute("aria-pressed", String(sharesScreen));
    this.#share.disabled = phase !== "live" && !sharesScreen;
    this.#interrupt.disabled = !interruptible;
    this.#text.disabled = this.#send.disabled = phase !== "live";
    // A control that goes away takes the focus with it: hand it to what stands in its place.
    if (hadFocus === this.#start && inSession) byId("state-text", HTMLElement).focus();
    else if (hadFocus?.id === "hangup" && !inSession) this.#start.focus();
  }

  disableStart() {
    this.#start.disabled = true;
  }

  /**
   * Ask for the server's key; null if the person would rather not.
   * @param {string} reason why it is asked again, or ""
   * @returns {Promise<string | null>}
   */
  askKey(reason) {
    this.#keyReason.textContent = reason;
    this.#key.value = "";
    this.#keyDialog.returnValue = "";
    this.#keyDialog.showModal();
    return new Promise((resolve) => {
      const closed = () => {
        const key = this.#key.value.trim();
        this.#key.value = "";
        resolve(this.#keyDialog.returnValue === "use" && key ? key : null);
      };
      this.#keyDialog.addEventListener("close", closed, { once: true });
    });
  }

  /** @param {KeyboardEvent} event */
  #keyDown(event) {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || this.#mute.disabled) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, select, textarea, dialog") || target.isContentEditable) return;
    // Space also presses the button that has the focus, and scrolls.
    const space = event.key === " " && !target.closest("button, summary, #captions");
    if (!space && event.key.toLowerCase() !== "m") return;
    event.preventDefault();
    this.#tell("mute");
  }

  /**
   * @param {HTMLButtonElement} button
   * @param {string} type
   */
  #on(button, type) {
    button.addEventListener("click", () => this.#tell(type));
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  #store(name, value) {
    this.#stored[name] = value;
    try {
      localStorage.setItem(STORED, JSON.stringify(this.#stored));
    } catch {
      // Storage may be forbidden: the choice then lasts as long as the page.
    }
  }

  /**
   * @param {string} type
   * @param {unknown} [detail]
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** @returns {Record<string, string>} */
function readStored() {
  try {
    return { ...JSON.parse(localStorage.getItem(STORED) ?? "{}") };
  } catch {
    return {};
  }
}

/**
 * @param {HTMLButtonElement} button
 * @param {string} words
 */
function setWords(button, words) {
  const place = button.querySelector(".words") ?? button;
  if (place.textContent !== words) place.textContent = words;
}
