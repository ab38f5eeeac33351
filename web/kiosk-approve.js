/** The operator's page: lets screens in by their code, and sets what each goes by. */

import { byId, make } from "./dom.js";

/** @typedef {{id: string, address: string, agent: string, age_s: number}} Wanting */
/** @typedef {Record<string, string | number | null>} Settings */
/** @typedef {{id: string, name: string, seen_s: number | null, doing: string, settings: Settings}} Device */
/** @typedef {{wanting: Wanting[], devices: Device[], defaults: Settings}} Listed */

const API = "/v1/kiosk/devices";
/** The same tab may have it for the call page. */
const KEY = "visavis.key";
const REFRESH_MS = 3_000;
/** A device asks every five seconds; one that has not for so long is away. */
const AWAY_S = 30;
const SAID_MS = 4_000;

/** @type {Record<string, string>} */
const DOINGS = { "": "is on", starting: "starts", attract: "waits for somebody", call: "is in a call", offline: "was offline" };
/** @type {Record<string, string>} */
const WAKES = { motion: "when somebody comes near", touch: "at a touch" };
/** Settings of the form that are told as they are written. */
const TEXTS = ["instructions", "voice", "language", "title", "text", "wake"];

class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.name = "Refused";
    this.status = status;
  }
}

class ApprovePage {
  #keyForm = byId("key-form", HTMLFormElement);
  #key = byId("key", HTMLInputElement);
  #approveForm = byId("approve-form", HTMLFormElement);
  #code = byId("code", HTMLInputElement);
  #name = byId("name", HTMLInputElement);
  #problem = byId("problem", HTMLElement);
  #template = byId("device-template", HTMLTemplateElement);
  #revokeDialog = byId("revoke-dialog", HTMLDialogElement);
  /** @type {Map<string, HTMLLIElement>} */
  #rows = new Map();
  #timer = 0;

  constructor() {
    // The picture that a screen shows leads here with its code behind the #, which no server and no log sees.
    this.#code.value = location.hash.slice(1);
    if (this.#code.value) history.replaceState(null, "", location.pathname);
    this.#keyForm.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, this.#key.value.trim());
      void this.#refresh();
    });
    this.#approveForm.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#do(() => this.#approve());
    });
    void this.#refresh();
  }

  async #approve() {
    const body = { code: this.#code.value, ...(this.#name.value.trim() && { name: this.#name.value.trim() }) };
    const device = await this.#ask("POST", API, body);
    this.#code.value = this.#name.value = "";
    say(byId("approved", HTMLElement), `“${device.name}” is approved.`);
    await this.#refresh();
  }

  /** Ask what there is, now and again later. */
  async #refresh() {
    window.clearTimeout(this.#timer);
    await this.#do(async () => this.#show(await this.#ask("GET", API)));
    this.#timer = window.setTimeout(() => this.#refresh(), REFRESH_MS);
  }

  /** Do something that the server may refuse. @param {() => Promise<void>} action */
  async #do(action) {
    try {
      await action();
      this.#problem.hidden = true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const asksKey = error.status === 401;
      this.#problem.hidden = asksKey && !sessionStorage.getItem(KEY);
      this.#problem.textContent = error.message;
      if (asksKey) this.#showKeyForm();
    }
  }

  #showKeyForm() {
    if (this.#keyForm.hidden) {
      sessionStorage.removeItem(KEY);
      this.#key.value = "";
    }
    for (const id of ["approve-form", "wanting-part", "devices-part"]) byId(id, HTMLElement).hidden = true;
    this.#keyForm.hidden = false;
  }

  /**
   * @param {string} method
   * @param {string} address
   * @param {object} [body]
   * @returns {Promise<any>}
   */
  async #ask(method, address, body) {
    const key = sessionStorage.getItem(KEY);
    let response;
    try {
      response = await fetch(address, {
        method,
        headers: { ...(key && { Authorization: `Bearer ${key}` }), ...(body && { "Content-Type": "application/json" }) },
        body: body && JSON.stringify(body),
        cache: "no-store",
      });
    } catch {
      throw new Refused(0, "The server does not answer.");
    }
    if (response.status === 204) return null;
    const answer = await response.json().catch(() => null);
    if (response.status === 404 && answer?.error?.code === "not_found") {
      throw new Refused(404, "Kiosks are switched off on this server: set kiosk.enabled.");
    }
    if (!response.ok) throw new Refused(response.status, answer?.error?.message ?? `The server answered with status ${response.status}.`);
    return answer;
  }

  /** @param {Listed} listed */
  #show({ wanting, devices, defaults }) {
    this.#keyForm.hidden = true;
    this.#approveForm.hidden = false;
    byId("wanting-part", HTMLElement).hidden = wanting.length === 0;
    byId("devices-part", HTMLElement).hidden = false;
    byId("none", HTMLElement).hidden = devices.length > 0;
    byId("wanting", HTMLUListElement).replaceChildren(...wanting.map((each) => this.#wantingRow(each)));
    const list = byId("devices", HTMLUListElement);
    for (const [id, row] of this.#rows) {
      if (devices.some((device) => device.id === id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    for (const device of devices) {
      const row = this.#rows.get(device.id) ?? this.#deviceRow(device, defaults);
      this.#rows.set(device.id, row);
      if (row.parentElement !== list) list.append(row);
      showDoing(row, device);
    }
  }

  /** @param {Wanting} wanting */
  #wantingRow({ id, address, agent, age_s }) {
    const refuse = make("button", { type: "button" }, "Refuse");
    refuse.addEventListener("click", () => this.#dismiss(id));
    const what = make("div", {}, `${address || "unknown address"}, asked ${duration(age_s)} ago`, make("p", { class: "hint" }, agent));
    return make("li", {}, what, refuse);
  }

  /**
   * @param {Device} device
   * @param {Settings} defaults
   */
  #deviceRow(device, defaults) {
    const row = /** @type {HTMLLIElement} */ (document.importNode(this.#template.content, true).firstElementChild);
    const form = /** @type {HTMLFormElement} */ (row.querySelector("form"));
    fill(form, device, defaults);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#do(async () => {
        const changed = await this.#ask("PATCH", `${API}/${device.id}`, { name: field(form, "name").value, settings: settingsOf(form) });
        fill(form, changed, defaults);
        showDoing(row, changed);
        say(/** @type {HTMLElement} */ (row.querySelector(".saved")), "Saved. The screen follows within seconds.");
      });
    });
    row.querySelector(".revoke")?.addEventListener("click", () => {
      this.#revokeDialog.returnValue = "";
      this.#revokeDialog.onclose = () => {
        if (this.#revokeDialog.returnValue === "revoke") void this.#dismiss(device.id);
      };
      this.#revokeDialog.showModal();
    });
    return row;
  }

  /** @param {string} id */
  async #dismiss(id) {
    await this.#do(async () => this.#ask("DELETE", `${API}/${id}`));
    await this.#refresh();
  }
}

/**
 * @param {HTMLLIElement} row
 * @param {Device} device
 */
function showDoing(row, { name, seen_s, doing }) {
  const title = row.querySelector("h3");
  const state = row.querySelector(".doing");
  if (!title || !state) return;
  title.textContent = name;
  const away = seen_s === null || seen_s > AWAY_S;
  state.classList.toggle("away", away);
  state.textContent = seen_s === null ? "not heard of yet" : away ? `not heard of for ${duration(seen_s)}` : (DOINGS[doing] ?? "is on");
}

/**
 * @param {HTMLFormElement} form
 * @param {Device} device
 * @param {Settings} defaults
 */
function fill(form, { name, settings }, defaults) {
  field(form, "name").value = name;
  const wake = /** @type {HTMLSelectElement} */ (form.elements.namedItem("wake"));
  const usual = WAKES[String(defaults.wake)];
  wake.replaceChildren(
    make("option", { value: "" }, `as the server has it: ${usual}`),
    ...Object.entries(WAKES).map(([value, words]) => make("option", { value }, words)),
  );
  for (const each of [...TEXTS, "idle_s", "volume"]) {
    const scale = each === "volume" ? 100 : 1;
    const shown = (/** @type {string | number | null | undefined} */ value) => String(typeof value === "number" ? value * scale : (value ?? ""));
    field(form, each).value = shown(settings[each]);
    field(form, each).placeholder = shown(defaults[each]);
  }
}

/** @param {HTMLFormElement} form @returns {Settings} all of them; null is the server's */
function settingsOf(form) {
  const number = (/** @type {string} */ name, scale = 1) => {
    const text = field(form, name).value.trim();
    return text === "" ? null : Number(text) / scale;
  };
  const texts = TEXTS.map((name) => [name, field(form, name).value.trim() || null]);
  return { ...Object.fromEntries(texts), idle_s: number("idle_s"), volume: number("volume", 100) };
}

/**
 * @param {HTMLFormElement} form
 * @param {string} name
 */
function field(form, name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
}

/** @param {number} seconds */
function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5_400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

/**
 * @param {HTMLElement} place
 * @param {string} words
 */
function say(place, words) {
  place.textContent = words;
  window.setTimeout(() => {
    if (place.textContent === words) place.textContent = "";
  }, SAID_MS);
}

new ApprovePage();
