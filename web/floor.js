/** Who has the floor, read from the events of the call. */

/** @typedef {import("./call.js").WireEvent} WireEvent */
/**
 * pondering: the model thinks before it answers, and says so; thinking: an answer is awaited.
 * @typedef {"listening" | "hearing" | "thinking" | "pondering" | "speaking"} FloorState
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
  /** The newest response that was played. @type {string | null} */
  #played = null;

  /** @returns {FloorState} */
  get state() {
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
        this.#hearing = false;
        this.#awaited = "response";
        break;
      case "input_audio_buffer.cleared":
        this.#hearing = false;
        this.#awaited = null;
        break;
      case "response.created":
        this.#awaited = null;
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
      case "output_audio_buffer.started":
        this.#awaited = null;
        this.#playing = this.#played = event.response_id;
        break;
      case "output_audio_buffer.stopped":
      case "output_audio_buffer.cleared":
        this.#awaited = null;
        this.#playing = null;
        break;
    }
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
