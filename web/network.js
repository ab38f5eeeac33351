/** Which network carries this device: that it has changed is told sooner by the browser than by packets that stay away. */

/**
 * @param {() => void} listener called when the device is back online, or on another network
 * @param {AbortSignal} signal ends that
 */
export function onNetworkChange(listener, signal) {
  window.addEventListener("online", listener, { signal });
  // Not in every browser, nor among TypeScript's names.
  /** @type {EventTarget | undefined} */
  const connection = Reflect.get(navigator, "connection");
  connection?.addEventListener("change", listener, { signal });
}
