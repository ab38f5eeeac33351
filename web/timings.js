/** Where the milliseconds of each turn went: a strip per answer, from the server's marks and what the page itself hears. */

import { make } from "./dom.js";

/** @typedef {import("./call.js").WireEvent} WireEvent */

/**
 * Milliseconds after the caller stopped speaking (after the request, where a turn was typed).
 * @typedef {Record<string, number>} Marks
 */

/**
 * @typedef {object} Turn
 * @property {string} response
 * @property {string | null} item of the answer
 * @property {"spoken" | "typed"} kind
 * @property {number | null} submitted performance.now() when the page learnt that the turn had ended
 * @property {Marks} marks
 * @property {number | null} heard performance.now() of the first sound of the answer
 */

/** @typedef {{name: string, label: string, from: number, to: number}} Stage */

/** Marks on the way to the voice, each named for the work that ends with it; mostly in this order. */
const STAGES = /** @type {const} */ ([
  ["turn_end", "Turn ended"],
  ["request_sent", "Request sent"],
  ["transcript", "Words recognised"],
  ["first_thought", "First thought"],
  ["first_text", "First words"],
  ["first_audio", "First voice"],
  ["first_sent", "First sound sent"],
  ["heard", "Heard here"],
]);

/** How late the news of an answer may be that is heard already. */
const EARLY_MS = 500;

export class Timings {
  #place;
  /** @type {Map<string, Turn>} */
  #turns = new Map();
  /** @type {{kind: "spoken" | "typed", at: number} | null} */
  #submitted = null;
  /** The turn whose first sound is awaited. @type {Turn | null} */
  #awaiting = null;
  /** When a voice became audible before its answer was told of: sound does not wait for a busy page. @type {number | null} */
  #early = null;

  /** @param {(item: string) => HTMLElement | null} place where the strip of an item goes */
  constructor(place) {
    this.#place = place;
  }

  /** Turns so far, oldest first: kind, marks, and milliseconds to the first sound. */
  get all() {
    return [...this.#turns.values()].map((turn) => ({
      response: turn.response,
      item: turn.item,
      kind: turn.kind,
      marks: allMarks(turn),
      total: total(allMarks(turn)),
    }));
  }

  clear() {
    this.#turns.clear();
    this.#submitted = this.#awaiting = null;
  }

  /** A text was sent at `now`. @param {number} now */
  typed(now) {
    this.#submitted = { kind: "typed", at: now };
  }

  /** The voice became audible at `at`. @param {number} at */
  heard(at) {
    const turn = this.#awaiting;
    if (!turn) {
      this.#early = at;
      return;
    }
    this.#awaiting = null;
    turn.heard = at;
    this.#draw(turn);
  }

  /**
   * @param {WireEvent} event
   * @param {number} now performance.now()
   */
  receive(event, now) {
    switch (event.type) {
      case "input_audio_buffer.speech_stopped":
      case "input_audio_buffer.committed":
        this.#submitted = { kind: "spoken", at: now };
        break;
      case "response.created":
        this.#begin(event.response.id, now);
        break;
      case "response.output_item.added":
        this.#update(event.response_id, (turn) => (turn.item ??= event.item.type === "message" ? event.item.id : null));
        break;
      case "visavis.turn_timings":
        this.#update(event.response_id, (turn) => {
          Object.assign(turn.marks, event.marks);
        });
        break;
      case "output_audio_buffer.stopped":
      case "output_audio_buffer.cleared":
        this.#awaiting = this.#early = null;
        break;
    }
  }

  /**
   * @param {string} response
   * @param {number} now
   */
  #begin(response, now) {
    const { kind, at } = this.#submitted ?? { kind: "spoken", at: null };
    const turn = { response, item: null, kind, submitted: at, marks: {}, heard: null };
    this.#submitted = null;
    this.#turns.set(response, turn);
    this.#awaiting = turn;
    const early = this.#early;
    this.#early = null;
    if (early !== null && now - early < EARLY_MS) this.heard(early);
  }

  /**
   * @param {string} response
   * @param {(turn: Turn) => void} change
   */
  #update(response, change) {
    const turn = this.#turns.get(response);
    if (!turn) return;
    change(turn);
    this.#draw(turn);
  }

  /** @param {Turn} turn */
  #draw(turn) {
    const place = turn.item && this.#place(turn.item);
    const marks = allMarks(turn);
    const stages = stagesOf(marks);
    if (!place || stages.length === 0) return;
    const wasOpen = place.querySelector("details")?.open ?? false;
    place.replaceChildren(strip(stages, marks, wasOpen));
  }
}

/**
 * The server's marks and the page's own, on the server's scale.
 * @param {Turn} turn
 * @returns {Marks}
 */
function allMarks({ marks, kind, submitted, heard }) {
  if (heard === null || submitted === null) return marks;
  // The page learns of the end of the turn when the server does; so the two clocks meet there.
  const offset = kind === "typed" ? 0 : (marks.turn_end ?? 0);
  return { ...marks, heard: Math.max(0, Math.round(offset + heard - submitted)) };
}

/** @param {Marks} marks */
function total(marks) {
  const sent = marks.heard ?? marks.first_sent;
  if (sent !== undefined) return sent;
  const made = marks.first_audio ?? marks.first_text;
  // What was made in advance is held until the turn is over.
  return made === undefined ? null : Math.max(made, marks.turn_end ?? made);
}

/**
 * The stages in the order in which they ended, the first from the earliest mark or the end of the speech. A request that left
 * while the caller paused lies, with what came of it, before the end of the turn.
 * @param {Marks} marks
 */
function stagesOf(marks) {
  /** What is heard here was sent, whatever the clocks say. @param {string} name */
  const order = (name) => (name === "heard" ? Infinity : marks[name]);
  const known = STAGES.filter(([name]) => isOnTheWay(name, marks)).sort(([a], [b]) => order(a) - order(b));
  /** @type {Stage[]} */
  const stages = [];
  let from = Math.min(0, ...known.map(([name]) => marks[name]));
  for (const [name, label] of known) {
    const to = Math.max(from, marks[name]);
    stages.push({ name, label: name === "request_sent" && isAskedInAdvance(marks) ? "Asked in advance" : label, from, to });
    from = to;
  }
  return stages;
}

/**
 * @param {string} name
 * @param {Marks} marks
 */
function isOnTheWay(name, marks) {
  const mark = marks[name];
  if (typeof mark !== "number") return false;
  // Some engines recognise the words beside the answer, not before it.
  if (name === "transcript") return mark <= (marks.first_text ?? -Infinity);
  return name === "heard" || mark <= (marks.first_sent ?? Infinity);
}

/** @param {Marks} marks */
function isAskedInAdvance({ request_sent, turn_end }) {
  return request_sent < turn_end;
}

/**
 * @param {Stage[]} stages at least one
 * @param {Marks} marks
 * @param {boolean} open
 */
function strip(stages, marks, open) {
  const start = stages[0].from;
  const end = Math.max(start + 1, stages[stages.length - 1].to);
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  for (const { name, from, to } of stages) {
    if (to === from) continue;
    const part = make("i", { class: `stage-${name}` });
    part.style.flexGrow = String(to - from);
    bar.append(part);
  }
  const words = make("span", { class: "sr" }, "Answer began after ");
  const summary = make("summary", {}, words, bar, make("span", { class: "total" }, seconds(total(marks) ?? end)));
  const rows = make("dl");
  for (const stage of stages) rows.append(row(stage, start, end));
  const details = make("details", { class: "strip" }, summary, rows);
  details.open = open;
  return details;
}

/**
 * @param {Stage} stage
 * @param {number} start of the whole strip
 * @param {number} end of the whole strip
 */
function row({ name, label, from, to }, start, end) {
  const share = make("i", { class: `stage-${name}` });
  share.style.marginInlineStart = `${((from - start) / (end - start)) * 100}%`;
  share.style.width = `${((to - from) / (end - start)) * 100}%`;
  return make(
    "div",
    {},
    make("dt", {}, label),
    make("dd", { class: "track", "aria-hidden": "true" }, share),
    make("dd", { class: "figure" }, `${Math.round(to - from)} ms`),
  );
}

/** @param {number} milliseconds */
function seconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(2)} s`;
}
