/** Camera or screen on its way to the server: sharp, and no more pictures than it looks at. */

/** Chromium counts whole frames a second. */
const SLOWEST = 1;

export class Pictures {
  /** @type {RTCRtpSender} */
  #sender;
  #hint;
  #fastest;
  /** What is set of a sender is set in order: each change starts from what it has then. */
  #changing = Promise.resolve();

  /**
   * @param {RTCPeerConnection} peer not yet connected
   * @param {object} options
   * @param {number} options.bitrate bits per second at most
   * @param {number} options.fastest pictures per second at most
   * @param {"detail" | "text"} options.hint what matters in them
   */
  constructor(peer, { bitrate, fastest, hint }) {
    const sendEncodings = [{ maxBitrate: bitrate, maxFramerate: fastest }];
    this.#sender = peer.addTransceiver("video", { direction: "sendonly", sendEncodings }).sender;
    this.#hint = hint;
    this.#fastest = fastest;
  }

  /** @param {MediaStreamTrack | null} track */
  async send(track) {
    // Sharp and slow rather than smooth: what is shown should be readable.
    if (track) track.contentHint = this.#hint;
    await this.#sender.replaceTrack(track);
  }

  /**
   * Send as many as the server wants from now on.
   * @param {number} fps pictures per second; 0: none
   */
  want(fps) {
    this.#changing = this.#changing.then(() => this.#tune(fps)).catch((error) => {
      console.debug("the browser keeps its rate of pictures:", error);
    });
  }

  /** @param {number} fps */
  async #tune(fps) {
    const parameters = this.#sender.getParameters();
    for (const encoding of parameters.encodings) {
      encoding.active = fps > 0;
      if (fps > 0) encoding.maxFramerate = Math.min(this.#fastest, Math.max(SLOWEST, fps));
    }
    await this.#sender.setParameters(parameters);
  }
}
