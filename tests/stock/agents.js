// A page around OpenAI's voice agents, as their documentation has it, with devices that the test works: a voice that
// is there when it says so, and the browser's invented camera by the hook that is there for it.

import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";

import { Voice } from "./voice.js";

const voice = new Voice();

const weather = tool({
  name: "weather",
  description: "Tells the weather.",
  parameters: z.object({ place: z.string() }),
  execute: async ({ place }) => `21 degrees in ${place}`,
});
const agent = new RealtimeAgent({ name: "Friend", instructions: "Be brief.", tools: [weather] });

const player = Object.assign(new Audio(), { autoplay: true });
const transport = new OpenAIRealtimeWebRTC({
  mediaStream: new MediaStream([voice.track]),
  audioElement: player,
  baseUrl: `${location.origin}/v1/realtime/calls`,
  changePeerConnection: async (connection) => {
    const camera = await navigator.mediaDevices.getUserMedia({ video: true });
    connection.addTransceiver(camera.getVideoTracks()[0], { direction: "sendonly" });
    return connection;
  },
});
const session = new RealtimeSession(agent, { transport });

/** Every event that came, as it came; and what the library made of them. */
const told = [];
const noted = { errors: [], tools: [], history: [] };
transport.on("*", (event) => told.push(JSON.parse(JSON.stringify(event))));
session.on("error", (error) => noted.errors.push(JSON.stringify(error, Object.getOwnPropertyNames(error))));
session.on("agent_tool_end", (_, __, { name }, result) => noted.tools.push([name, result]));
session.on("history_updated", (history) => (noted.history = JSON.parse(JSON.stringify(history))));

const listen = (ms) => new Promise((done) => setTimeout(done, ms));

Object.assign(window, {
  session,
  transport,
  told,
  noted,
  listen,
  /** Be heard for so many milliseconds. */
  speak: (ms) => voice.speak(ms),
  count: (type) => told.filter((event) => event.type === type).length,
  words: () => noted.history.flatMap(({ content }) => content ?? []).map(({ text, transcript }) => text ?? transcript),
});
