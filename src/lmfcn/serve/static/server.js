// Requests to the server. The token, if one is needed, stays in this tab.

const KEPT = "lmfcn-token";
const ATTEMPTS = 4; // while the server has too much to do
const LONGEST_PAUSE = 10; // seconds

export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Take a token from the address (#token=...), where no server and no log sees it. */
export function takeTokenFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    keepToken(token);
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export const keepToken = (token) => sessionStorage.setItem(KEPT, token);

export async function ask(address, options = {}) {
  const token = sessionStorage.getItem(KEPT);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  for (let attempt = 1; ; attempt++) {
    response = await send(address, { ...options, headers });
    if (response.status !== 503 || attempt === ATTEMPTS) break;
    const seconds = Math.min(Number(response.headers.get("Retry-After")) || 1, LONGEST_PAUSE);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem.detail || `The server answered with status ${response.status}.`);
  }
  return response;
}

async function send(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer; is it still running?");
  }
}

export async function post(address, values) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(address, { method: "POST", headers, body: JSON.stringify(values) })).json();
}

let chosen = null; // the name of the model; null for the first

/** Ask the model with this name from now on. */
export const choose = (name) => (chosen = name);

const ofModel = (address) =>
  chosen === null ? address : `${address}${address.includes("?") ? "&" : "?"}model=${encodeURIComponent(chosen)}`;

export const getModels = async () => (await (await ask("models")).json()).models;

export const getModel = async () => (await ask(ofModel("model"))).json();

export async function getGallery() {
  pictures.clear(); // they are those of another gallery
  return (await ask(ofModel("gallery"))).json();
}

export async function predict(file, reasons) {
  const body = new FormData();
  body.append("files", file, file.name);
  const { answers } = await (await ask(ofModel(`predict?reasons=${reasons}`), { method: "POST", body })).json();
  return answers[0];
}

const pictures = new Map();

/** Return an address for a small picture of a training image; each is fetched once. */
export function trainingPicture(image) {
  if (!pictures.has(image)) {
    const fetched = ask(ofModel(`gallery/${image}`)).then(async (response) => URL.createObjectURL(await response.blob()));
    fetched.catch(() => pictures.delete(image));
    pictures.set(image, fetched);
  }
  return pictures.get(image);
}
