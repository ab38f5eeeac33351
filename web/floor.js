/** Who has the floor, read from the events of the call. */

/** @typedef {import("./call.js").WireEvent} WireEvent */
/** @typedef {"listening" | "hearing" | "thinking" | "speaking"} FloorState */

export class Floor {
  #hearing = false;
  /** A turn was handed in and its response has not been announced yet. */
  #submitted = false;
  /** @type {string | null} */
  #generating = null;
  /** @type {string | null} */
  #playing = null;

  /** @returns {FloorState} */
  get state() {
    if (this.#hearing) return "hearing";
    if (this.#playing) return "speaking";
    return this.#generating || this.#submitted ? "thinking" : "listening";
  }

  /** The id of the response being generated, which is the time when it can be cancelled. */
  get generating() {
    return this.#generating;
  }

  /** Whether there is anything to interrupt. */
  get interruptible() {
    return this.#generating !== null || this.#playing !== null;
  }

  /** @param {WireEvent} event */
  receive(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#hearing = true;
        this.#submitted = false;
        break;
      case "input_audio_buffer.speech_stopped":
        this.#hearing = false;
        break;
      case "input_audio_buffer.committed":
        this.#hearing = false;
        this.#submitted = true;
        break;
      case "input_audio_buffer.cleared":
        this.#hearing = false;
        break;
      case "response.created":
        this.#submitted = false;
        this.#generating = event.response.id;
        break;
      case "response.done":
        if (this.#generating === event.response.id) this.#generating = null;
        break;
      case "output_audio_buffer.started":
        this.#playing = event.response_id;
        break;
      case "output_audio_buffer.stopped":
      case "output_audio_buffer.cleared":
        this.#playing = null;
        break;
    }
  }

  /** No response came of the turn, as when the server leaves answering to its client. */
  giveUp() {
    this.#submitted = false;
  }
}
