/** What a page leaves to the one that is loaded in its place: the token of its call. It stays in this tab. */

const CALL = "visavis.call";
/** The server keeps what was said for so long (`resume.keep_s`). */
const KEPT_MS = 60_000;

/** @param {string} token */
export function leaveToken(token) {
  sessionStorage.setItem(CALL, JSON.stringify({ token, at: Date.now() }));
}

/** The token that was left here within the last minute, if one was; it is there once. @returns {string | null} */
export function takeToken() {
  const left = sessionStorage.getItem(CALL);
  sessionStorage.removeItem(CALL);
  if (!left) return null;
  const { token, at } = JSON.parse(left);
  return Date.now() - at < KEPT_MS ? token : null;
}
