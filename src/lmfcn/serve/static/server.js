// Requests to the server. The token, if one is needed, stays in this tab.

const KEPT = "lmfcn-token";

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
  try {
    response = await fetch(address, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer; is it still running?");
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem.detail || `The server answered with status ${response.status}.`);
  }
  return response;
}

export async function post(address, values) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(address, { method: "POST", headers, body: JSON.stringify(values) })).json();
}

export const getModel = async () => (await ask("model")).json();

export const getGallery = async () => (await ask("gallery")).json();

export async function predict(file, reasons) {
  const body = new FormData();
  body.append("files", file, file.name);
  const { answers } = await (await ask(`predict?reasons=${reasons}`, { method: "POST", body })).json();
  return answers[0];
}

const pictures = new Map();

/** Return an address for a small picture of a training image; each is fetched once. */
export function trainingPicture(image) {
  if (!pictures.has(image)) {
    const fetched = ask(`gallery/${image}`).then(async (response) => URL.createObjectURL(await response.blob()));
    fetched.catch(() => pictures.delete(image));
    pictures.set(image, fetched);
  }
  return pictures.get(image);
}
