// A page around two clients of WHIP, as their documentations have them: a voice that the test works and the
// browser's invented camera go out, nothing comes back.

import { WHIPClient as EyevinnClient } from "@eyevinn/whip-web-client";
import { WHIPClient as MedoozeClient } from "whip-whep/whip.js";

import { Voice } from "./voice.js";

const voice = new Voice();

/** Requests that the clients made, in order: [method, status]. */
const asked = [];
const { fetch } = window;
window.fetch = async (url, options) => {
  const response = await fetch(url, options);
  asked.push([options?.method ?? "GET", response.status]);
  return response;
};

async function devices() {
  const camera = await navigator.mediaDevices.getUserMedia({ video: true });
  return new MediaStream([voice.track, camera.getVideoTracks()[0]]);
}

/** Each gives what ends the call. */
const clients = {
  async medooze(url) {
    const peer = new RTCPeerConnection();
    const stream = await devices();
    for (const track of stream.getTracks()) peer.addTransceiver(track, { direction: "sendonly", streams: [stream] });
    const client = new MedoozeClient();
    await client.publish(peer, url);
    return () => client.stop();
  },
  async eyevinn(url) {
    const client = new EyevinnClient({ endpoint: url, opts: { iceServers: [], timeout: 300 } });
    await client.ingest(await devices());
    return () => client.destroy();
  },
};

let end;

Object.assign(window, {
  asked,
  voice,
  call: async (name) => {
    end = await clients[name](new URL("/v1/realtime/calls", location.href).href);
  },
  end: () => end(),
});
