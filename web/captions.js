/** What both sides said, as it is said; what was cut off before it was heard stays visible, struck through. */

import { make } from "./dom.js";

/** @typedef {import("./call.js").WireEvent} WireEvent */
/** @typedef {"user" | "assistant"} Role */

/**
 * @typedef {object} Caption
 * @property {string} id of the item
 * @property {Role} role
 * @property {string} text
 * @property {boolean} final no more text will come
 * @property {number | null} heard characters that were heard, where the rest was cut off
 */

/**
 * @typedef {object} Line
 * @property {Caption} caption
 * @property {string} before what is known of its beginning, shown until it has a text
 * @property {HTMLLIElement} row
 * @property {HTMLParagraphElement} words
 * @property {HTMLDivElement} extra
 */

/** Scrolled up by more than this, the reader is reading and is not pulled down. */
const NEAR_END_PX = 80;

export class Captions {
  #list;
  /** @type {Map<string, Line>} */
  #lines = new Map();
  /** Items that were deleted: what comes late for them is dropped. @type {Set<string>} */
  #deleted = new Set();
  /** What the caller said first and goes on from: it stays in sight until the joined turn takes its place. @type {Line | null} */
  #leaving = null;
  /** Places of items whose words are to be told. @type {Map<string, HTMLLIElement>} */
  #awaited = new Map();

  /** @param {HTMLOListElement} list */
  constructor(list) {
    this.#list = list;
  }

  /** Copies of all captions, oldest first. */
  get all() {
    const lines = [...this.#lines.values()].sort((one, other) => (precedes(one.row, other.row) ? -1 : 1));
    return lines.map(({ caption }) => ({ ...caption }));
  }

  get isEmpty() {
    return this.#list.childElementCount === 0;
  }

  /**
   * The place under a caption for what belongs to its turn.
   * @param {string} id
   */
  extra(id) {
    return this.#lines.get(id)?.extra ?? null;
  }

  /**
   * A line that nobody said: what happened to the call.
   * @param {string} text
   */
  note(text) {
    this.#keepEnd(() => this.#list.append(make("li", { class: "note" }, text)));
  }

  clear() {
    this.#lines.clear();
    this.#deleted.clear();
    this.#leaving = null;
    this.#awaited.clear();
    this.#list.replaceChildren();
  }

  /**
   * Another call goes on with these items: keep a place for those that are not shown, and see what was heard of the last
   * answer. Returns the ids of the items to be retrieved.
   * @param {string[]} ids oldest first
   */
  goOn(ids) {
    const unknown = ids.filter((id) => !this.#lines.has(id));
    for (const id of unknown) {
      const place = make("li", { hidden: "" });
      this.#awaited.set(id, place);
      this.#list.append(place);
    }
    const answer = [...this.#lines.values()].findLast(({ caption }) => caption.role === "assistant");
    if (!answer) return unknown;
    const { id } = answer.caption;
    if (ids.includes(id)) return [...unknown, id];
    this.#cut(id, "");
    return unknown;
  }

  /** No text will follow any more: the call is over. */
  finish() {
    this.#letGo();
    for (const line of this.#lines.values()) {
      if (line.caption.final) continue;
      line.caption.final = true;
      this.#draw(line);
    }
  }

  /** @param {WireEvent} event */
  receive(event) {
    switch (event.type) {
      case "input_audio_buffer.cleared":
        this.#letGo();
        break;
      case "input_audio_buffer.committed":
        this.#change(event.item_id, "user", () => {});
        break;
      case "conversation.item.added":
      case "conversation.item.done":
        this.#receiveItem(event.item);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.#change(event.item_id, "user", (caption) => (caption.text += event.delta));
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#settle(event.item_id, "user", event.transcript);
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.#settle(event.item_id, "user", "");
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.#change(event.item_id, "assistant", (caption) => (caption.text += event.delta));
        break;
      case "response.output_audio_transcript.done":
        this.#settle(event.item_id, "assistant", event.transcript);
        break;
      case "response.output_text.done":
        this.#settle(event.item_id, "assistant", event.text);
        break;
      case "response.output_item.done":
        if (this.#lines.has(event.item.id)) this.#change(event.item.id, "assistant", (caption) => (caption.final = true));
        break;
      case "conversation.item.truncated":
        if (event.transcript !== undefined) this.#cut(event.item_id, event.transcript);
        break;
      case "conversation.item.retrieved":
        if (this.#awaited.has(event.item.id)) this.#fill(event.item);
        else this.#cut(event.item.id, textOf(event.item));
        break;
      case "conversation.item.deleted":
        this.#delete(event.item_id);
        break;
    }
  }

  /** @param {any} item as on the wire, whose place is kept */
  #fill(item) {
    const place = this.#awaited.get(item.id);
    this.#awaited.delete(item.id);
    this.#receiveItem(item);
    const line = this.#lines.get(item.id);
    if (line) place?.replaceWith(line.row);
    else place?.remove();
  }

  /** @param {string} id */
  #delete(id) {
    const line = this.#lines.get(id);
    this.#lines.delete(id);
    this.#deleted.add(id);
    if (line?.caption.role === "user") {
      this.#letGo();
      this.#leaving = line;
      line.row.classList.add("live");
    } else {
      line?.row.remove();
    }
  }

  #letGo() {
    this.#leaving?.row.remove();
    this.#leaving = null;
  }

  /** @param {any} item as on the wire */
  #receiveItem(item) {
    if (item?.type !== "message" || (item.role !== "user" && item.role !== "assistant")) return;
    const text = textOf(item);
    this.#change(item.id, item.role, (caption) => {
      if (caption.text || !text) return;
      caption.text = text;
      caption.final = true;
    });
  }

  /**
   * @param {string} id
   * @param {Role} role
   * @param {string} text
   */
  #settle(id, role, text) {
    this.#change(id, role, (caption) => {
      // After a cut the wire may repeat only what was heard; what was shown stays, to be struck through.
      if (caption.heard === null && text.length >= caption.text.length) caption.text = text;
      else if (role === "user") caption.text = text;
      caption.final = true;
    });
  }

  /**
   * @param {string} id
   * @param {string} heard
   */
  #cut(id, heard) {
    const line = this.#lines.get(id);
    if (!line || line.caption.role !== "assistant") return;
    const { text } = line.caption;
    this.#change(id, "assistant", (caption) => {
      caption.heard = text.startsWith(heard) ? heard.length : sameWords(text, heard);
      caption.final = true;
    });
  }

  /**
   * Change a caption, made if it is new, and show it.
   * @param {string} id
   * @param {Role} role
   * @param {(caption: Caption) => void} change
   */
  #change(id, role, change) {
    if (this.#deleted.has(id)) return;
    this.#keepEnd(() => {
      let line = this.#lines.get(id);
      if (!line) {
        line = newLine({ id, role, text: "", final: false, heard: null });
        this.#lines.set(id, line);
        this.#list.append(line.row);
        if (role === "user" && this.#leaving) {
          line.before = this.#leaving.caption.text || this.#leaving.before;
          this.#letGo();
        }
      }
      change(line.caption);
      this.#draw(line);
    });
  }

  /** @param {Line} line */
  #draw({ caption, before, row, words }) {
    const { role, text, final, heard } = caption;
    row.classList.toggle("live", !final);
    // An answer that was stopped before its first word, or is about to begin, takes no room.
    row.hidden = role === "assistant" && !text;
    if (!text) {
      words.replaceChildren(before, final ? make("i", {}, "not understood") : dots("being recognised"));
    } else if (heard === null || heard >= text.length) {
      words.replaceChildren(text);
    } else {
      const hidden = make("span", { class: "sr" }, " Cut off before it was heard: ");
      words.replaceChildren(text.slice(0, heard), make("s", {}, hidden, text.slice(heard)));
    }
  }

  /** @param {() => void} change */
  #keepEnd(change) {
    const list = this.#list;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PX;
    change();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
}

/** @param {any} item as on the wire */
function textOf(item) {
  /** @type {any[]} */
  const parts = item?.content ?? [];
  return parts.map((part) => part.text ?? part.transcript ?? "").join("");
}

/**
 * Length of the beginning of `text` with as many words as `heard` has: for a heard text that was spaced or spelt anew.
 * @param {string} text
 * @param {string} heard
 */
function sameWords(text, heard) {
  const count = heard.split(/\s+/).filter(Boolean).length;
  const words = [...text.matchAll(/\S+/g)];
  const last = words[Math.min(count, words.length) - 1];
  return last ? last.index + last[0].length : 0;
}

/**
 * @param {Node} one
 * @param {Node} other
 */
function precedes(one, other) {
  return (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) > 0;
}

/** @param {Caption} caption */
function newLine(caption) {
  const words = make("p", { class: "words", dir: "auto" });
  const extra = make("div", { class: "extra" });
  const who = make("span", { class: "sr" }, caption.role === "user" ? "You: " : "Visavis: ");
  const row = make("li", { class: `turn ${caption.role}` }, who, words, extra);
  return { caption, before: "", row, words, extra };
}

/** @param {string} meaning */
function dots(meaning) {
  return make("span", { class: "dots" }, make("i"), make("i"), make("i"), make("span", { class: "sr" }, meaning));
}
