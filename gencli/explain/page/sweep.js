// A grid of runs: the last axis has the columns, each combination of the others a row. A cell is [index on each
// axis ..., [measures in their order], text, command or ""].
const state = { row: 0, column: 0, measure: 0 };
const lastAxis = data.axes.at(-1), others = data.axes.slice(0, -1);
const combinations = others.reduce((found, axis) => found.flatMap((one) => axis.values.map((_, i) => [...one, i])), [[]]);
const cells = new Map(data.cells.map(([at, ...rest]) => [at.join(), rest]));
const cellAt = (row, column) => cells.get([...combinations[row], column].join());
const valueOf = (cell, measure) => cell?.[0][measure] ?? null;
const number = (value) => (value === null ? "-" : Number.isInteger(value) ? whole(value) : Math.abs(value) >= 0.01 && Math.abs(value) < 1000 ? value.toFixed(Math.abs(value) >= 100 ? 0 : 2) : value.toPrecision(2));

function range(measure) {
  const all = [...cells.values()].map((cell) => valueOf(cell, measure)).filter((value) => value !== null);
  return [Math.min(...all), Math.max(...all)];
}
const share = (value, [low, high]) => (value === null ? 0 : high > low ? (value - low) / (high - low) : 0.5);
const measureName = (i) => data.measures[i].name + (data.measures[i].unit ? `, ${data.measures[i].unit}` : "");

const once = (value) => [...cells.values()].filter((cell) => valueOf(cell, state.measure) === value).length === 1;
function drawGrid() {
  const bounds = range(state.measure), table = make("table", { class: "grid", role: "grid", "aria-label": `${measureName(state.measure)} of each cell` });
  const top = make("tr", null, ...others.map((axis) => make("th", { scope: "col" }, axis.name)), others.length ? null : make("th", null), ...lastAxis.values.map((value) => make("th", { scope: "col", class: "number" }, value)));
  const heading = make("tr", null, make("td", { colspan: Math.max(1, others.length), role: "presentation" }), make("th", { scope: "colgroup", colspan: lastAxis.values.length, class: "axis" }, lastAxis.name));
  const body = make("tbody");
  combinations.forEach((combination, row) => {
    const line = make("tr", null, ...combination.map((value, axis) => make("th", { scope: "row" }, others[axis].values[value])), others.length ? null : make("th", { scope: "row" }));
    lastAxis.values.forEach((_, column) => {
      const cell = cellAt(row, column), value = valueOf(cell, state.measure);
      const node = make("td", { role: "gridcell", tabindex: "-1", "data-row": row, "data-column": column, class: cell ? "cell" : "cell empty" }, number(value));
      if (value !== null && bounds[1] > bounds[0]) {
        node.style.setProperty("--heat", `${(45 * share(value, bounds)).toFixed(1)}%`);
        if (value === bounds[1] && once(value)) node.append(make("span", { class: "end" }, "highest"));
        if (value === bounds[0] && once(value)) node.append(make("span", { class: "end" }, "lowest"));
      }
      line.append(node);
    });
    body.append(line);
  });
  table.append(make("thead", null, heading, top), body);
  $("main").replaceChildren(make("h2", null, data.title), make("p", { class: "lead soft" }, `${some(data.cells.length, "run")}. The shade is ${measureName(state.measure)}: ${number(bounds[0])} to ${number(bounds[1])}.`), make("div", { class: "scroll" }, table));
  mark();
}
const nodeAt = (row, column) => document.querySelector(`.cell[data-row="${row}"][data-column="${column}"]`);
function mark() {
  for (const node of document.querySelectorAll(".cell")) {
    const chosen = Number(node.dataset.row) === state.row && Number(node.dataset.column) === state.column;
    node.setAttribute("aria-selected", String(chosen));
    node.tabIndex = chosen ? 0 : -1;
  }
  drawPanel();
}
function place() {
  return data.axes.map((axis, i) => [axis.name, axis.values[[...combinations[state.row], state.column][i]]]);
}
function drawPanel() {
  const cell = cellAt(state.row, state.column), title = make("h2", { tabindex: "-1", id: "token-title" });
  place().forEach(([name, value], i) => title.append(i ? ", " : "", `${name} `, make("b", null, value)));
  const head = make("div", { class: "head sweep" }, make("p", { class: "soft" }, "Run"), title);
  if (!cell) return $("panel").replaceChildren(head, make("p", { class: "soft" }, "This cell has no run."));
  const measures = make("ul", { class: "bars" });
  data.measures.forEach((_, i) => {
    const value = valueOf(cell, i), line = make("li", { class: i === state.measure ? "own" : "" });
    line.append(make("span", { class: "measure" }, measureName(i)), bar(share(value, range(i))), make("span", { class: "number" }, number(value)));
    measures.append(line);
  });
  const [, text, command] = cell, copies = make("div", { class: "copies" }, button("Copy the run", copyCell, { title: "As JSON (y)" }));
  if (command) copies.append(button("Copy the command", () => copy(command, "Command")));
  $("panel").replaceChildren(head, make("section", { "aria-labelledby": "measures" }, make("h3", { id: "measures" }, "Measures"), measures, make("p", { class: "soft scale" }, "A bar goes from the lowest to the highest value of the grid.")),
    make("section", { "aria-labelledby": "cell-text" }, make("h3", { id: "cell-text" }, "Text"), fill(make("blockquote", { dir: "auto" }), text, "(no text)", "\n")), copies);
}
function copyCell() {
  const cell = cellAt(state.row, state.column);
  if (!cell) return notice("This cell has no run.");
  const measures = Object.fromEntries(data.measures.map((measure, i) => [measure.name, valueOf(cell, i)]));
  copy(JSON.stringify({ at: Object.fromEntries(place()), measures, text: cell[1] }, null, 1), "Run");
}
function go(row, column) {
  state.row = Math.max(0, Math.min(combinations.length - 1, row));
  state.column = Math.max(0, Math.min(lastAxis.values.length - 1, column));
  mark();
  show();
}
function show() {
  const node = nodeAt(state.row, state.column);
  node?.focus({ preventScroll: true });
  node?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
function extreme() {
  const most = range(state.measure)[1];
  combinations.forEach((_, row) => lastAxis.values.forEach((_value, column) => { if (valueOf(cellAt(row, column), state.measure) === most) go(row, column); }));
}
$("main").addEventListener("click", (event) => {
  const node = event.target.closest(".cell");
  if (node) go(Number(node.dataset.row), Number(node.dataset.column));
});
$("tools").append(choices("mode", "Shade", data.measures.map((measure, i) => [String(i), measure.name]), "0", (value) => { state.measure = Number(value); drawGrid(); }));
bindKeys([
  ["ArrowLeft", "cell before", () => go(state.row, state.column - 1)], ["ArrowRight", "cell after", () => go(state.row, state.column + 1)], ["ArrowUp", "row above", () => go(state.row - 1, state.column)], ["ArrowDown", "row below", () => go(state.row + 1, state.column)],
  ["Home", "first cell of the row", () => go(state.row, 0)], ["End", "last cell of the row", () => go(state.row, Infinity)], ["Enter", "to the details, Escape leads back", () => $("token-title")?.focus()], ["Escape", "back to the cell", show],
  ["n", "the highest cell", extreme], ["c", "next measure", () => cycle("mode")], ["y", "copy the run as JSON", copyCell],
]);
drawGrid();
performance.mark("drawn");
