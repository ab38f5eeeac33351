/** What a kiosk says on its screen, in the languages that we can write. */

/**
 * @typedef {object} Words
 * @property {string} title while nobody is there
 * @property {string} come below it, where coming near begins a call
 * @property {string} touch below it, where a touch does
 * @property {string} privacy
 * @property {string} pairing
 * @property {string} pairingHow with {url}
 * @property {string} start
 * @property {string} allow
 * @property {string} offline
 * @property {string} offlineHow
 * @property {string} nextTry with {s}
 * @property {string} disabled
 * @property {string} insecure
 * @property {string} leaving with {s}
 * @property {string} end
 * @property {string} trouble
 * @property {string} deaf
 * @property {Record<import("./face.js").Look, string>} looks
 */

/** @type {Record<string, Words>} */
const WORDS = {
  en: {
    title: "Hello!",
    come: "Come closer and talk to me.",
    touch: "Touch the screen and talk to me.",
    privacy: "Until we talk the camera only notices movement. No picture leaves this screen.",
    pairing: "This screen waits to be approved",
    pairingHow: "Scan the code, or open {url} and type:",
    start: "Touch to start",
    allow: "Allow microphone and camera",
    offline: "No connection",
    offlineHow: "This screen comes back by itself.",
    nextTry: "Next try in {s} s",
    disabled: "Kiosks are switched off on this server.",
    insecure: "Microphone and camera need https: open this page by its secure address.",
    leaving: "Are you still there? We end in {s} s.",
    end: "End",
    trouble: "That did not work",
    deaf: "I cannot hear you: no microphone.",
    looks: {
      idle: "",
      connecting: "One moment",
      listening: "I am listening",
      hearing: "I am listening",
      thinking: "Thinking",
      pondering: "Thinking it over",
      speaking: "Interrupt me whenever you like",
      yielding: "Go ahead",
      interrupted: "Go ahead",
      waiting: "One moment, the connection is gone",
      trouble: "That did not work",
    },
  },
  de: {
    title: "Hallo!",
    come: "Kommen Sie näher und sprechen Sie mit mir.",
    touch: "Berühren Sie den Bildschirm und sprechen Sie mit mir.",
    privacy: "Bis wir sprechen, bemerkt die Kamera nur Bewegung. Kein Bild verlässt dieses Gerät.",
    pairing: "Dieses Gerät wartet auf seine Freigabe",
    pairingHow: "Scannen Sie den Code, oder öffnen Sie {url} und geben Sie ein:",
    start: "Zum Starten berühren",
    allow: "Mikrofon und Kamera erlauben",
    offline: "Keine Verbindung",
    offlineHow: "Dieses Gerät meldet sich von selbst zurück.",
    nextTry: "Nächster Versuch in {s} s",
    disabled: "Kiosks sind auf diesem Server ausgeschaltet.",
    insecure: "Mikrofon und Kamera brauchen https: Öffnen Sie diese Seite unter ihrer sicheren Adresse.",
    leaving: "Sind Sie noch da? Wir enden in {s} s.",
    end: "Beenden",
    trouble: "Das hat nicht geklappt",
    deaf: "Ich kann Sie nicht hören: Das Mikrofon fehlt.",
    looks: {
      idle: "",
      connecting: "Einen Moment",
      listening: "Ich höre zu",
      hearing: "Ich höre zu",
      thinking: "Ich überlege",
      pondering: "Ich überlege gründlich",
      speaking: "Unterbrechen Sie mich jederzeit",
      yielding: "Ja, bitte",
      interrupted: "Ja, bitte",
      waiting: "Einen Moment, die Verbindung ist weg",
      trouble: "Das hat nicht geklappt",
    },
  },
  fr: {
    title: "Bonjour !",
    come: "Approchez et parlez-moi.",
    touch: "Touchez l’écran et parlez-moi.",
    privacy: "Avant notre conversation, la caméra ne perçoit que le mouvement. Aucune image ne quitte cet écran.",
    pairing: "Cet écran attend d’être autorisé",
    pairingHow: "Scannez le code, ou ouvrez {url} et saisissez :",
    start: "Touchez pour commencer",
    allow: "Autorisez le micro et la caméra",
    offline: "Pas de connexion",
    offlineHow: "Cet écran se reconnecte tout seul.",
    nextTry: "Prochain essai dans {s} s",
    disabled: "Les bornes sont désactivées sur ce serveur.",
    insecure: "Le micro et la caméra exigent https : ouvrez cette page à son adresse sécurisée.",
    leaving: "Êtes-vous encore là ? Fin dans {s} s.",
    end: "Terminer",
    trouble: "Cela n’a pas marché",
    deaf: "Je ne vous entends pas : il n’y a pas de micro.",
    looks: {
      idle: "",
      connecting: "Un instant",
      listening: "Je vous écoute",
      hearing: "Je vous écoute",
      thinking: "Je réfléchis",
      pondering: "Je réfléchis longuement",
      speaking: "Interrompez-moi quand vous voulez",
      yielding: "Je vous en prie",
      interrupted: "Je vous en prie",
      waiting: "Un instant, la connexion est coupée",
      trouble: "Cela n’a pas marché",
    },
  },
  es: {
    title: "¡Hola!",
    come: "Acérquese y hable conmigo.",
    touch: "Toque la pantalla y hable conmigo.",
    privacy: "Hasta que hablemos, la cámara solo nota movimiento. Ninguna imagen sale de esta pantalla.",
    pairing: "Esta pantalla espera ser aprobada",
    pairingHow: "Escanee el código, o abra {url} y escriba:",
    start: "Toque para empezar",
    allow: "Permita el micrófono y la cámara",
    offline: "Sin conexión",
    offlineHow: "Esta pantalla vuelve por sí sola.",
    nextTry: "Próximo intento en {s} s",
    disabled: "Los quioscos están desactivados en este servidor.",
    insecure: "El micrófono y la cámara necesitan https: abra esta página en su dirección segura.",
    leaving: "¿Sigue ahí? Terminamos en {s} s.",
    end: "Terminar",
    trouble: "No ha funcionado",
    deaf: "No puedo oírle: no hay micrófono.",
    looks: {
      idle: "",
      connecting: "Un momento",
      listening: "Le escucho",
      hearing: "Le escucho",
      thinking: "Estoy pensando",
      pondering: "Lo estoy pensando bien",
      speaking: "Interrúmpame cuando quiera",
      yielding: "Adelante",
      interrupted: "Adelante",
      waiting: "Un momento, se perdió la conexión",
      trouble: "No ha funcionado",
    },
  },
};

/**
 * The words of the first language that we have, else English ones.
 * @param {...(string | null | undefined)} tags such as de or pt-BR
 * @returns {{words: Words, language: string}}
 */
export function wordsFor(...tags) {
  const known = tags.map((tag) => tag?.split("-")[0].toLowerCase() ?? "").find((name) => Object.hasOwn(WORDS, name));
  const language = known ?? "en";
  return { words: WORDS[language], language };
}

/**
 * Fill in the places of a sentence.
 * @param {string} sentence
 * @param {Record<string, string | number>} places
 */
export function filled(sentence, places) {
  return sentence.replace(/\{(\w+)\}/g, (_, name) => String(places[name]));
}
