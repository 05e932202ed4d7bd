// Many images: a table that fills while they are predicted, and its CSV file.

import { byId, element, percent } from "./dom.js";

export class Batch {
  /** @param choose called with the item of a row that was clicked */
  constructor(choose) {
    this.items = [];
    this.choose = choose;
    byId("download").addEventListener("click", () => download("predictions.csv", asCsv(this.items, this.classes)));
  }

  add(items) {
    this.items.push(...items);
    byId("rows").append(...items.map((item) => this.row(item)));
    this.refresh();
  }

  clear() {
    this.items = [];
    byId("rows").replaceChildren();
    this.refresh();
  }

  row(item) {
    const button = element("button", { type: "button", textContent: item.file.name });
    button.addEventListener("click", () => this.choose(item));
    const name = element("th", { scope: "row" }, button);
    item.row = element("tr", {}, name, element("td", { textContent: "waiting" }), element("td"), element("td"));
    return item.row;
  }

  show(item) {
    const [label, probability, set] = [...item.row.children].slice(1);
    label.className = item.error ? "problem" : "";
    if (item.error) {
      label.textContent = item.error;
    } else {
      const { answer } = item;
      label.textContent = answer.label;
      probability.textContent = percent(answer.probabilities[answer.label]);
      set.textContent = answer.prediction_set === null ? "–" : answer.prediction_set.join(", ");
    }
    this.refresh();
  }

  mark(chosen) {
    for (const { row } of this.items) row.classList.toggle("chosen", row === chosen.row);
  }

  refresh() {
    const done = this.items.filter((item) => item.answer || item.error).length;
    const progress = byId("progress");
    [progress.max, progress.value] = [Math.max(1, this.items.length), done];
    progress.hidden = done === this.items.length;
    byId("download").disabled = done < this.items.length || done === 0;
    byId("batch-title").textContent = progress.hidden ? `All ${done} images` : `${done} of ${this.items.length} images`;
    byId("batch").hidden = this.items.length < 2;
  }
}

export function asCsv(items, classes) {
  const heading = ["name", "label", "probability", "prediction_set", "error", ...classes.map((label) => `p(${label})`)];
  const lines = items.map(({ file, answer, error }) => {
    if (!answer) return [file.name, "", "", "", error ?? ""];
    const shares = classes.map((label) => answer.probabilities[label]);
    return [file.name, answer.label, answer.probabilities[answer.label], (answer.prediction_set ?? []).join("|"), "", ...shares];
  });
  return [heading, ...lines].map((line) => line.map(cell).join(",") + "\r\n").join("");
}

/** Quote a value; texts that a spreadsheet would run as a formula get an apostrophe before them. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
