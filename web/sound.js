/** How loud each side is, and the moment a voice becomes audible. */

/** About -50 dB of full scale: below speech, above what codecs make of silence. */
const AUDIBLE = 0.003;
/** So long a silence ends a sound; shorter ones are between words. */
const SILENCE_MS = 150;
const WINDOW = 2048;

/** One audio context for the page; browsers let few be made, and start one only after a gesture. */
export class SoundMeter {
  #context = new AudioContext();
  /** @type {Map<string, {source: MediaStreamAudioSourceNode, analyser: AnalyserNode}>} */
  #taps = new Map();
  #samples = new Float32Array(WINDOW);
  #lastLoud = -Infinity;

  /**
   * Listen to a stream under a name, in place of what had that name.
   * @param {"microphone" | "voice"} name
   * @param {MediaStream | null} stream
   */
  tap(name, stream) {
    this.#taps.get(name)?.source.disconnect();
    this.#taps.delete(name);
    if (!stream?.getAudioTracks().length) return;
    const source = this.#context.createMediaStreamSource(stream);
    const analyser = new AnalyserNode(this.#context, { fftSize: WINDOW });
    source.connect(analyser);
    this.#taps.set(name, { source, analyser });
    void this.#context.resume();
  }

  /**
   * Loudness from 0 to 1 as the ear grades it, of the newest 43 ms.
   * @param {"microphone" | "voice"} name
   */
  level(name) {
    const samples = this.#newest(name);
    if (!samples) return 0;
    let sum = 0;
    for (const sample of samples) sum += sample * sample;
    const decibels = 10 * Math.log10(sum / samples.length + 1e-12);
    return Math.min(1, Math.max(0, (decibels + 55) / 40));
  }

  /**
   * When the voice began to sound, as performance.now(), if it was silent at the last call and no longer is. To be called at
   * least every 40 ms: the window then overlaps the previous one, so the answer is exact to a sample.
   * @returns {number | null}
   */
  onset() {
    const samples = this.#newest("voice");
    if (!samples) return null;
    const now = performance.now();
    const first = samples.findIndex((sample) => Math.abs(sample) > AUDIBLE);
    if (first < 0) return null;
    const wasSilent = now - this.#lastLoud > SILENCE_MS;
    this.#lastLoud = now;
    return wasSilent ? now - ((samples.length - first) / this.#context.sampleRate) * 1000 : null;
  }

  /** @param {"microphone" | "voice"} name */
  #newest(name) {
    const analyser = this.#taps.get(name)?.analyser;
    analyser?.getFloatTimeDomainData(this.#samples);
    return analyser && this.#samples;
  }
}
