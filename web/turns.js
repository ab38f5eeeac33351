/** Who tells that the caller's turn is over: the choices of the page, and what they are on the wire. */

/** @typedef {"auto" | "low" | "high" | "silence" | "press"} TurnChoice */

/** @type {Record<TurnChoice, object | null>} */
const DETECTION = {
  auto: { type: "semantic_vad", eagerness: "auto" },
  low: { type: "semantic_vad", eagerness: "low" },
  high: { type: "semantic_vad", eagerness: "high" },
  silence: { type: "server_vad" },
  press: null,
};

/**
 * What to ask of the server, in a session.update.
 * @param {TurnChoice} choice
 */
export function sessionOf(choice) {
  return { type: "realtime", audio: { input: { turn_detection: DETECTION[choice] } } };
}

/**
 * The choice that a session stands for; undefined if it does not say.
 * @param {any} session as on the wire
 * @returns {TurnChoice | undefined}
 */
export function choiceOf(session) {
  const detection = session?.audio?.input?.turn_detection;
  if (detection === null) return "press";
  if (detection?.type === "server_vad") return "silence";
  if (detection?.type !== "semantic_vad") return undefined;
  const { eagerness } = detection;
  return eagerness === "low" || eagerness === "high" ? eagerness : "auto";
}

/**
 * @param {string | undefined} name
 * @returns {name is TurnChoice}
 */
export function isTurnChoice(name) {
  return name !== undefined && Object.hasOwn(DETECTION, name);
}
