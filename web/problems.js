/** What is wrong and what to do about it, in words. */

/** @typedef {import("./devices.js").DeviceProblem} DeviceProblem */
/** @typedef {import("./call.js").CallRefused} CallRefused */
/** @typedef {{title: string, advice: string}} Explanation */

/**
 * @param {DeviceProblem} problem
 * @returns {Explanation}
 */
export function explainDevice({ devices, reason }) {
  const both = devices.length > 1;
  const name = both ? "microphone and camera" : devices[0];
  const meanwhile = devices.includes("microphone") ? "Meanwhile you can type." : "Calls work with sound alone.";
  switch (reason) {
    case "denied":
      return {
        title: `The ${name} ${both ? "are" : "is"} blocked`,
        advice: `The icon beside the address opens the permissions of this page: allow ${both ? "them" : "it"} there. If that is done, look in the privacy settings of the system. ${meanwhile}`,
      };
    case "missing":
      return {
        title: `No ${both ? "microphone and no camera" : name} found`,
        advice: `Plug one in, then try again, or choose another one under Devices. ${meanwhile}`,
      };
    case "busy":
      return {
        title: `The ${name} ${both ? "are in use or do" : "is in use or does"} not answer`,
        advice: `Close other programs that use ${both ? "them" : "it"}, or choose another one under Devices. ${meanwhile}`,
      };
    case "insecure":
      return {
        title: `The browser gives this page no ${name}`,
        advice: `Pages from another machine get one only over https. Open this page with https://, or on the machine itself as http://localhost. ${meanwhile}`,
      };
    case "unsupported":
      return { title: `This browser offers no ${name}`, advice: `A current Firefox, Chrome, Edge or Safari does. ${meanwhile}` };
    case "failed":
      return { title: `The ${name} could not be opened`, advice: `Try again, or choose another one under Devices. ${meanwhile}` };
  }
}

/**
 * @param {CallRefused} refused any but 401, for which a key is asked
 * @returns {Explanation}
 */
export function explainRefusal({ status, message, code }) {
  const said = message ? `It says: ${sentence(message)}` : `It answered with status ${status}.`;
  switch (status) {
    case 429:
      return { title: "Too many tries", advice: said };
    case 503:
      return { title: code === "shutting_down" ? "The server is going away" : "The server is busy", advice: said };
    case 403:
      return {
        title: "This page may not call this server",
        advice: `${said} Open the page from the server's own address, or have its operator allow ${location.origin}.`,
      };
    case 404:
    case 405:
      return { title: "There is no call service at this address", advice: `${said} Check the address, or the proxy in front of the server.` };
    case 413:
      return { title: "The call request was too large for the server", advice: said };
    default:
      return { title: status >= 500 ? "The server has a problem" : "The server refused the call", advice: said };
  }
}

/** @type {Explanation} */
export const NO_MEDIA_PATH = {
  title: "Sound cannot reach the server",
  advice:
    "The server took the call, but no media connection came about. Usually a firewall or VPN blocks UDP: allow UDP to the server, turn the VPN off, or try another network.",
};

/** @type {Explanation} */
export const NO_WEBRTC = {
  title: "This browser cannot make calls",
  advice: "It has no WebRTC, or an extension turned it off. A current Firefox, Chrome, Edge or Safari has it.",
};

/** @type {Explanation} */
export const SOUND_BLOCKED = { title: "The browser holds the sound back", advice: "It wants a tap first." };

/** @type {Explanation} */
export const SPEAKER_FAILED = { title: "This speaker cannot be used", advice: "Choose another one under Devices." };

/** @type {Explanation} */
export const LONGEST_CALL = { title: "The call has reached its greatest length", advice: "Start a new one to go on." };

/** @type {Explanation} */
export const LONGEST_SILENCE = { title: "The call has ended", advice: "Nobody said anything for a long time. Start a new one to go on." };

/** @param {string} text */
function sentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
