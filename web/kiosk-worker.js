/** Keeps the kiosk's page, so that a device that starts before its server, or reloads without it, shows more than an error. */

const CACHE = "visavis-kiosk";
const PAGE = "/kiosk";
const API = "/v1/";
/** A server that takes longer is away. */
const PATIENCE_MS = 4_000;

// Typed as a page's: the types of workers contradict them.
const worker = /** @type {any} */ (globalThis);

worker.addEventListener("install", (/** @type {any} */ event) => event.waitUntil(worker.skipWaiting()));

worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));

worker.addEventListener("message", (/** @type {any} */ event) => {
  event.waitUntil(keep([new URL(PAGE, location.origin).href, ...event.data]));
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { request } = event;
  const isOurs = request.mode !== "navigate" || new URL(request.url).pathname === PAGE;
  if (request.method === "GET" && isOurs && isFile(request.url)) event.respondWith(newest(request));
});

/** @param {string} address */
function isFile(address) {
  const { origin, pathname } = new URL(address);
  return origin === location.origin && !pathname.startsWith(API);
}

/** @param {string[]} addresses of which each is kept that can be had */
async function keep(addresses) {
  const cache = await caches.open(CACHE);
  await Promise.allSettled(addresses.filter(isFile).map((address) => cache.add(address)));
}

/**
 * What the server has, or what it had when it was last there.
 * @param {Request} request
 */
async function newest(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request, { ignoreSearch: true, ignoreVary: true });
    if (kept) return kept;
    throw error;
  }
}
