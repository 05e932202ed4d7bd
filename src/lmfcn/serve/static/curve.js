// The curve of the balanced accuracy over the number of labels, with its interval.

import { byId, drawing } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [30, 312, 10, 138];

export function drawCurve(points) {
  const svg = byId("curve");
  svg.toggleAttribute("hidden", points.length === 0);
  if (points.length === 0) return;
  const most = Math.max(...points.map(({ n }) => n));
  const least = Math.floor(10 * Math.min(...points.map(({ low, expected }) => Math.min(low, expected ?? 1)))) / 10;
  const x = (n) => LEFT + ((RIGHT - LEFT) * n) / most;
  const y = (value) => BOTTOM - ((BOTTOM - TOP) * (value - least)) / (1 - least || 1);
  const path = (pairs) => pairs.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const up = points.map(({ n, high }) => [x(n), y(high)]);
  const down = points.map(({ n, low }) => [x(n), y(low)]).reverse();
  const line = points.map(({ n, value }) => [x(n), y(value)]);
  const hoped = points.filter(({ expected }) => expected !== null).map(({ n, expected }) => [x(n), y(expected)]);
  const written = (text, place, anchor) => {
    const made = drawing("text", { x: place[0], y: place[1], "text-anchor": anchor });
    made.textContent = text;
    return made;
  };
  svg.replaceChildren(
    drawing("path", { class: "axis", d: `M${LEFT} ${TOP}V${BOTTOM}H${RIGHT}`, fill: "none" }),
    drawing("path", { class: "band", d: `${path([...up, ...down])}Z` }),
    drawing("path", { class: "line", d: path(line) }),
    drawing("path", { class: "hoped", d: path(hoped) || "M0 0" }),
    ...line.map(([cx, cy]) => drawing("circle", { class: "point", cx, cy, r: 2.5 })),
    written("1.0", [LEFT - 4, TOP + 4], "end"),
    written(least.toFixed(1), [LEFT - 4, BOTTOM], "end"),
    written(`${most} labels`, [RIGHT, BOTTOM + 16], "end"),
  );
  const told = points.map(({ n, value }) => `${value.toFixed(2)} with ${n}`).join(", ");
  const last = points.at(-1).expected;
  const hope = last === null ? "" : `; ${Math.round(100 * last)} % of the suggestions should be right`;
  svg.setAttribute("aria-label", `Cross-validated balanced accuracy by number of labels: ${told}${hope}`);
}
