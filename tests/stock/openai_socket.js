// A page around OpenAI's client for browsers, as its documentation has it: Realtime over a WebSocket.

import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";

const RATE = 24_000;

/** The client knows wss: alone, and here is nothing before the server that takes TLS off. */
window.WebSocket = class extends WebSocket {
  constructor(url, protocols) {
    super(url.replace(/^wss:/, "ws:"), protocols);
  }
};

/** Events of the server and errors of the client, in order. */
const told = [];
const errors = [];
let socket;

async function connect(session) {
  const options = { baseURL: `${location.origin}/v1`, dangerouslyAllowBrowser: true };
  const holder = new OpenAI({ apiKey: "none", ...options });
  const secret = await holder.realtime.clientSecrets.create({ session: { type: "realtime", ...session } });
  const client = new OpenAI({ apiKey: secret.value, ...options });
  socket = new OpenAIRealtimeWebSocket({ model: "any" }, client);
  socket.on("event", (event) => told.push(event));
  socket.on("error", (error) => errors.push(error.message));
  await new Promise((done) => socket.on("session.created", done));
}

/** Say a tone of so many seconds, or nothing. */
function say(seconds, loudness) {
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
  connect,
  say,
  send: (event) => socket.send(event),
  close: () => socket.close(),
  /** All events of a kind. */
  all: (kind) => told.filter(({ type }) => type === kind),
});
