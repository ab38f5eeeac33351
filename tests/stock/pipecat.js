// A page around Pipecat's client, as its documentation has it, with devices that the test works: a voice
// that is there when it says so, and the browser's invented camera.

import { PipecatClient, RTVIEvent } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport } from "@pipecat-ai/small-webrtc-transport";

import { Voice } from "./voice.js";

/** In place of Daily's, which fetches its own from elsewhere. */
class Devices {
  supportsScreenShare = false;
  isSharingScreen = false;
  isMicEnabled = true;
  isCamEnabled = false;
  selectedMic = {};
  selectedCam = {};
  selectedSpeaker = {};
  #tracks = {};

  setClientOptions({ enableCam }) {
    this.isCamEnabled = enableCam ?? false;
  }

  async initialize() {
    this.voice = new Voice();
    this.#tracks.audio = this.voice.track;
    if (this.isCamEnabled) {
      const camera = await navigator.mediaDevices.getUserMedia({ video: true });
      this.#tracks.video = camera.getVideoTracks()[0];
    }
  }

  async connect() {}

  async disconnect() {}

  tracks() {
    return { local: this.#tracks };
  }

  enableCam(enable) {
    this.isCamEnabled = enable;
    this.#tracks.video.enabled = enable;
  }

  /** Be heard for so many milliseconds. */
  speak(ms) {
    return this.voice.speak(ms);
  }

  /** Say nothing for so long. */
  listen(ms) {
    return new Promise((done) => setTimeout(done, ms));
  }
}

const devices = new Devices();
const transport = new SmallWebRTCTransport({ mediaManager: devices });
const client = new PipecatClient({ transport, enableCam: true });

/** What the client has told, in order: [event, what came with it]. */
const told = [];
for (const event of Object.values(RTVIEvent)) {
  client.on(event, (data) => told.push([event, data instanceof Object ? JSON.parse(JSON.stringify(data)) : data]));
}

/** The loudest that the bot was heard so far. */
let loudest = 0;
client.on(RTVIEvent.TrackStarted, (track) => {
  if (track.kind !== "audio" || track === devices.tracks().local.audio) return;
  const audio = new AudioContext();
  // Chromium hands no sound of a call on that nothing plays.
  const playing = Object.assign(new Audio(), { srcObject: new MediaStream([track]), muted: true });
  void playing.play();
  const meter = new AnalyserNode(audio);
  audio.createMediaStreamSource(playing.srcObject).connect(meter);
  const samples = new Float32Array(meter.fftSize);
  setInterval(() => {
    meter.getFloatTimeDomainData(samples);
    loudest = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), loudest);
  }, 20);
});

Object.assign(window, {
  client,
  devices,
  transport,
  told,
  /** Data of all events of a kind. */
  all: (kind) => told.filter(([event]) => event === kind).map(([, data]) => data),
  loudest: () => loudest,
});
