// A microphone that the test works: a tone that is there when it says so.

export class Voice {
  /** Made where there is an AudioContext to be had: after a gesture, or where none is asked for. */
  constructor() {
    const audio = new AudioContext();
    const tone = new OscillatorNode(audio, { frequency: 440 });
    const microphone = audio.createMediaStreamDestination();
    this.loudness = new GainNode(audio, { gain: 0 });
    this.track = microphone.stream.getAudioTracks()[0];
    tone.connect(this.loudness).connect(microphone);
    tone.start();
  }

  /** Be heard for so many milliseconds. */
  async speak(ms) {
    this.loudness.gain.value = 0.5;
    await new Promise((done) => setTimeout(done, ms));
    this.loudness.gain.value = 0;
  }
}
