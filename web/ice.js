/** Ways through networks that let no packets through to the server: the relays it tells of, and what is found late. */

const ICE_SERVERS = "/v1/ice_servers";
/** Most servers have none to tell, and answer at once; a call is not held up for longer. */
const ASK_MS = 1_500;

/**
 * Ask the server which ICE servers there are; none if it does not say. What is wrong, the call itself will learn.
 * @param {Record<string, string>} headers
 * @returns {Promise<RTCIceServer[]>}
 */
export async function askIceServers(headers) {
  try {
    const response = await fetch(ICE_SERVERS, { headers, cache: "no-store", signal: AbortSignal.timeout(ASK_MS) });
    const { iceServers } = response.ok ? await response.json() : {};
    return Array.isArray(iceServers) ? iceServers : [];
  } catch {
    return [];
  }
}

/** Brings to the server what candidates a peer finds after its offer was sent: those of relays take a while. */
export class Trickle {
  /** Not sent yet; null until the offer is. @type {RTCIceCandidate[] | null} */
  #found = null;
  /** @type {((candidates: RTCIceCandidate[]) => void) | null} */
  #send = null;

  /** @param {RTCPeerConnection} peer */
  constructor(peer) {
    peer.addEventListener("icecandidate", ({ candidate }) => {
      if (!candidate?.candidate || !this.#found) return;
      this.#found.push(candidate);
      this.#flush();
    });
  }

  /** The offer is sent as it is now. */
  begin() {
    this.#found = [];
  }

  /**
   * The offer was answered: the call is there, and its ICE session has that tag.
   * @param {URL} resource
   * @param {string} tag
   * @param {() => Record<string, string>} headers
   */
  to(resource, tag, headers) {
    this.#send = (candidates) => {
      const options = { method: "PATCH", headers: { ...headers(), ...TYPE, "If-Match": tag }, body: fragment(candidates) };
      // One that is lost is one way less; a call that ends for lack of any says so itself.
      fetch(resource, options).catch(() => {});
    };
    this.#flush();
  }

  #flush() {
    if (this.#send && this.#found?.length) this.#send(this.#found.splice(0));
  }
}

const TYPE = { "Content-Type": "application/trickle-ice-sdpfrag" };

/**
 * Write candidates as RFC 8840 has them.
 * @param {RTCIceCandidate[]} candidates
 */
function fragment(candidates) {
  const ufrag = candidates[0].usernameFragment;
  const lines = ufrag ? [`a=ice-ufrag:${ufrag}`] : [];
  for (const { candidate, sdpMid } of candidates) {
    lines.push("m=audio 9 RTP/AVP 0", `a=mid:${sdpMid ?? ""}`, `a=${candidate}`);
  }
  return `${lines.join("\r\n")}\r\n`;
}
