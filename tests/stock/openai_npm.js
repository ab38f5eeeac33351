// A page around OpenAI's client for browsers, as its documentation has it: Realtime over a WebSocket or WebRTC.

import OpenAI from "openai";
import { OpenAIRealtimeWebRTC } from "openai/realtime/webrtc";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";

import { Voice } from "./voice.js";

const RATE = 24_000;
const OPTIONS = { baseURL: `${location.origin}/v1`, dangerouslyAllowBrowser: true };

/** The client knows wss: alone, and here is nothing before the server that takes TLS off. */
window.WebSocket = class extends WebSocket {
  constructor(url, protocols) {
    super(url.replace(/^wss:/, "ws:"), protocols);
  }
};

/** Events of the server and errors of the client, in order. */
const told = [];
const errors = [];

/** Each calls, and gives how to send, to be heard for some seconds, and to close. */
const ways = {
  async websocket(client) {
    const socket = new OpenAIRealtimeWebSocket({ model: "any" }, client);
    socket.on("event", (event) => told.push(event));
    socket.on("error", (error) => errors.push(error.message));
    await new Promise((done) => socket.on("session.created", done));
    return {
      send: (event) => socket.send(event),
      close: () => socket.close(),
      speak(seconds) {
        append(socket, seconds, 0.5);
        append(socket, 1.5, 0);
      },
    };
  },

  async webrtc(client) {
    const call = new OpenAIRealtimeWebRTC();
    const voice = new Voice();
    call.peerConnection.addTrack(voice.track);
    call.onEvent((event) => told.push(event));
    call.onConnectionEvent((event) => event.type === "error" && errors.push(event.error.message));
    const created = new Promise((done) => call.on("session.created", done));
    await call.connect({
      exchangeSdp: async (sdp, { signal }) => (await client.realtime.calls.create({ sdp }, { signal })).text(),
    });
    await created;
    return {
      send: (event) => call.send(event),
      close: () => call.close(),
      speak: (seconds) => voice.speak(seconds * 1000),
    };
  },
};

/** Send a tone of so many seconds, or silence. */
function append(socket, seconds, loudness) {
  for (let at = 0; at < seconds * RATE; at += RATE / 10) {
    const pcm = Int16Array.from({ length: RATE / 10 }, (_, i) => {
      return loudness * 32_767 * Math.sin((2 * Math.PI * 440 * (at + i)) / RATE);
    });
    const audio = btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)));
    socket.send({ type: "input_audio_buffer.append", audio });
  }
}

Object.assign(window, {
  told,
  errors,
  /** Call with settings that a client secret carries; what talks is `link` from then on. */
  async connect(way, session) {
    const holder = new OpenAI({ apiKey: "none", ...OPTIONS });
    const secret = await holder.realtime.clientSecrets.create({ session: { type: "realtime", ...session } });
    window.link = await ways[way](new OpenAI({ apiKey: secret.value, ...OPTIONS }));
  },
  /** All events of a kind. */
  all: (kind) => told.filter(({ type }) => type === kind),
});
