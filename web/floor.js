/** Who has the floor, read from the events of the call. */

/** @typedef {import("./call.js").WireEvent} WireEvent */
/**
 * listening: nobody speaks · hearing: the caller does · thinking: an answer is awaited · pondering: the model thinks before it
 * answers, and says so · speaking: the answer is heard · yielding: it is soft or waits, since somebody may be interrupting ·
 * interrupted: it was cut off just now.
 * @typedef {"listening" | "hearing" | "thinking" | "pondering" | "speaking" | "yielding" | "interrupted"} FloorState
 */

export class Floor {
  #hearing = false;
  /** What is to come by itself: the response to a turn that was handed in, or the sound of a response that is complete. */
  #awaited = /** @type {"response" | "sound" | null} */ (null);
  /** @type {string | null} */
  #generating = null;
  /** @type {string | null} */
  #playing = null;
  #pondering = false;
  /** The response that makes room for the caller. @type {string | null} */
  #yielding = null;
  #interrupted = false;
  /** The newest response that was played. @type {string | null} */
  #played = null;

  /** @returns {FloorState} */
  get state() {
    if (this.#interrupted) return "interrupted";
    if (this.#playing && this.#playing === this.#yielding) return "yielding";
    if (this.#hearing) return "hearing";
    if (this.#playing) return "speaking";
    if (this.#pondering) return "pondering";
    return this.#generating || this.#awaited ? "thinking" : "listening";
  }

  /** The id of the response being generated, which is the time when it can be cancelled. */
  get generating() {
    return this.#generating;
  }

  /** Whether there is anything to interrupt. */
  get interruptible() {
    return this.#generating !== null || this.#playing !== null || this.#awaited === "sound";
  }

  /** @param {WireEvent} event */
  receive(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#hearing = true;
        this.#awaited = null;
        break;
      case "input_audio_buffer.speech_stopped":
      case "input_audio_buffer.committed":
        this.#hearing = this.#interrupted = false;
        this.#awaited = "response";
        break;
      case "input_audio_buffer.cleared":
        this.#hearing = false;
        this.#awaited = null;
        break;
      case "response.created":
        this.#awaited = null;
        this.#interrupted = false;
        this.#generating = event.response.id;
        break;
      case "response.done":
        if (this.#generating === event.response.id) this.#generating = null;
        this.#pondering = false;
        if (isSpoken(event.response) && this.#played !== event.response.id) this.#awaited = "sound";
        break;
      case "visavis.thinking_started":
        this.#pondering = true;
        break;
      case "visavis.thinking_stopped":
        this.#pondering = false;
        break;
      case "visavis.output_stance":
        this.#yielding = event.stance === "open" ? null : event.response_id;
        break;
      case "output_audio_buffer.started":
        this.#awaited = null;
        this.#interrupted = false;
        this.#playing = this.#played = event.response_id;
        break;
      case "output_audio_buffer.cleared":
        this.#interrupted = this.#playing !== null;
        this.#awaited = this.#playing = null;
        break;
      case "output_audio_buffer.stopped":
        this.#awaited = this.#playing = null;
        break;
    }
  }

  /** The interruption has been shown for long enough. */
  moveOn() {
    this.#interrupted = false;
  }

  /** What was awaited has not come: the server left the answer to its client, or had nothing to say. */
  giveUp() {
    this.#awaited = null;
  }
}

/** @param {any} response as on the wire, done */
function isSpoken({ status, output_modalities, output }) {
  return status === "completed" && output_modalities?.includes("audio") && output?.length > 0;
}
