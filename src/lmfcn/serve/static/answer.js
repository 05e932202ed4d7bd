// Show the prediction for one image: probabilities, prediction set, pictures, deciding images.

import { byId, element, percent, signed } from "./dom.js";
import { makeEnlargeable } from "./enlarge.js";

const MOST_BARS = 12;
const UNUSUAL = 0.05;

export function showAnswer(answer, coverage) {
  const best = answer.probabilities[answer.label];
  byId("answer-name").textContent = answer.name;
  byId("answer-title").textContent = `${answer.label}, ${percent(best)}`;
  showProbabilities(answer.probabilities);
  byId("prediction-set").textContent = describeSet(answer.prediction_set, coverage);
  showTypicality(answer);
  showReasons(answer);
  byId("answer").hidden = false;
}

function showProbabilities(probabilities) {
  const entries = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
  const list = byId("probabilities");
  list.replaceChildren();
  for (const [label, share] of entries.slice(0, MOST_BARS)) {
    const fill = element("div", { className: "fill" });
    fill.style.width = `${100 * share}%`;
    const track = element("dd", { className: "track" }, fill);
    track.setAttribute("aria-hidden", "true");
    list.append(element("dt", { textContent: label }), track, element("dd", { textContent: percent(share) }));
  }
  if (entries.length > MOST_BARS) {
    list.append(element("dt", { textContent: `and ${entries.length - MOST_BARS} more` }));
  }
}

function describeSet(labels, coverage) {
  if (labels === null) return "The model was fitted without held-out images, so it has no prediction sets.";
  const sure = percent(coverage).replace(".0 ", " ");
  if (labels.length === 1) return `Prediction set: only ${labels[0]} (such sets hold the true class in about ${sure} of cases).`;
  return `Prediction set: ${labels.join(", ")} (such sets hold the true class in about ${sure} of cases).`;
}

function showTypicality({ typicality }) {
  const note = byId("typicality");
  note.hidden = typicality === null;
  if (note.hidden) return;
  const unusual = typicality <= UNUSUAL;
  note.classList.toggle("problem", unusual);
  const share = `${percent(typicality)} of the held-out images are at least as unusual as this one.`;
  note.textContent = unusual ? `Perhaps none of these classes: ${share} The probabilities only compare the classes.` : share;
}

function showReasons({ label, reasons }) {
  for (const id of ["picture", "map"]) makeEnlargeable(byId(id));
  byId("picture").src = reasons.picture;
  byId("map").src = reasons.map;
  byId("map").alt = `Map over the image: orange supports ${label}, blue contradicts it`;
  byId("sum").textContent =
    `Decision value for ${label}: ${signed(reasons.value)}. ${reasons.standing} It is the sum of the weights below, ` +
    `${signed(reasons.rest)} from ${reasons.n_rest} other support vectors, and a constant of ${signed(reasons.intercept)}.`;
  const strongest = Math.max(...[...reasons.in_favour, ...reasons.against].map((image) => Math.abs(image.weight)));
  showTiles("in-favour", `For ${label}`, reasons.in_favour, strongest);
  showTiles("against", `Against ${label}`, reasons.against, strongest);
}

function showTiles(id, title, images, strongest) {
  byId(`${id}-title`).textContent = images.length ? title : `${title}: none`;
  byId(id).replaceChildren(...images.map((image) => tile(image, strongest)));
}

function tile(image, strongest) {
  const bar = element("span", { className: "weight" });
  bar.style.width = `${(100 * Math.abs(image.weight)) / strongest}%`;
  const caption = element("figcaption", {}, bar, element("span", { className: "label", textContent: signed(image.weight) }));
  if (image.label !== null) caption.append(` ${image.label}`);
  if (image.name !== null) caption.append(element("span", { className: "file", textContent: image.name.split("/").pop(), title: image.name }));
  const figure = element("figure", {}, caption);
  if (image.picture) figure.prepend(makeEnlargeable(element("img", { src: image.picture, alt: `Training image of ${image.label}` })));
  return element("li", {}, figure);
}
