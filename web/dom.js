/** Small helpers over the document. */

/**
 * The element of that id, checked to be of that type.
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new TypeError(`#${id} is not a ${type.name}`);
  return element;
}

/**
 * A new element with attributes and children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * What a custom event carries; its type is told by who listens.
 * @param {Event} event
 * @returns {any}
 */
export function detailOf(event) {
  return /** @type {CustomEvent} */ (event).detail;
}
