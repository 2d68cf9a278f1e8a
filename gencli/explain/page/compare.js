// Two chains on one text: at each place how far their distributions are apart, and which tokens they choose.
// A row is [pos, total variation, KL in bits or null, token of the first, token of the second, deciding stages].
const state = { text: 0, at: 0, mode: "tv" };
const rows = new Map(data.rows.map((row) => [row[0], row]));
const ids = data.texts.map((text) => text.tokens), parts = partOf(...ids);
const differs = (row) => row !== undefined && row[3] !== row[4];
const above = (value, ...limits) => limits.filter((limit) => value > limit).length;
const MODES = {
  tv: ["total variation", (row) => above(row[1], 0.05, 0.2, 0.5), ["up to .05", ".05 to .2", ".2 to .5", "above .5"]],
  kl: ["KL", (row) => above(row[2] ?? Infinity, 0.1, 0.5, 2), ["up to .1 bits", ".1 to .5", ".5 to 2", "above 2"]],
  choice: ["choice", (row) => (differs(row) ? 3 : 0), ["same token", null, null, "another token"]],
};
const places = [...rows.keys()].sort((one, other) => one - other);
let nodes = [];

// The rows are about the first text; the second shares their places up to where the texts part.
function levelOf(index, at) {
  const row = rows.get(at);
  return row === undefined || (index === 1 && parts >= 0 && at > parts) ? 0 : MODES[state.mode][1](row);
}
function drawPage() {
  nodes = [];
  const lanes = data.texts.map((text, index) => {
    const [list, own] = tokenList(text.tokens, { index, prompt: data.prompt, title: text.title, parts, labelOf: (at) => (rows.has(at) ? `total variation ${p(rows.get(at)[1])}` : "no row") });
    own.forEach((node, at) => { if (index === 0 && differs(rows.get(at))) node.classList.add("differs"); });
    nodes.push(own);
    const head = make("div", { class: "lane-head" }, make("h2", null, text.title), make("p", { class: "soft" }, some(text.tokens.length, "token")));
    return make("section", { class: "lane", "aria-label": text.title }, head, make("p", { class: "chain-text" }, label(text.chain)), list);
  });
  $("main").replaceChildren(summary(), legend(), chart(), parting(...ids, parts), make("div", { class: "lanes" }, ...lanes), table());
  recolour();
  mark();
}
function summary() {
  const values = [...rows.values()], count = values.filter(differs).length, mean = values.reduce((sum, row) => sum + row[1], 0) / Math.max(1, values.length);
  return make("p", { class: "lead" }, make("strong", null, some(count, "place")), ` of ${whole(values.length)} where the chains choose different tokens from the same draw. Total variation is ${p(mean)} on average.`);
}
function legend() {
  const row = make("p", { class: "legend", id: "legend" });
  MODES[state.mode][2].forEach((text, level) => { if (text) row.append(make("span", { class: "token sample", "data-level": level }, text), " "); });
  row.append(make("span", { class: "token sample differs" }, "the chains choose differently"));
  return row;
}
function chart() {
  const all = Array.from({ length: Math.max(ids[0].length, (places.at(-1) ?? -1) + 1) }, (_, at) => rows.get(at));
  const number = state.mode === "kl" ? 2 : 1;
  return barChart({ values: all.map((row) => (row ? row[number] : 0)), levels: all.map((row) => (row ? MODES[state.mode][1](row) : 0)), title: state.mode === "kl" ? "KL" : "total variation", unit: state.mode === "kl" ? " bits" : "", index: 0, pick: go });
}
function recolour() {
  nodes.forEach((own, index) => own.forEach((node, at) => { node.dataset.level = levelOf(index, at); }));
}
function table() {
  const body = make("tbody");
  for (const at of places.filter((place) => differs(rows.get(place)))) {
    const [, tv, kl, a, b, decided] = rows.get(at), row = make("tr", { "data-place": at });
    row.append(make("th", { scope: "row", class: "number" }, button(String(at), () => go(at), { class: "link" })), make("td", null, label(nameOf(a))), make("td", null, label(nameOf(b))),
      make("td", { class: "number" }, p(tv)), make("td", { class: "number" }, kl === null ? "\u221e" : decimal(kl)), make("td", null, decided.join(", ") || "-"));
    row.addEventListener("click", (event) => { if (!event.target.closest("button")) go(at); });
    body.append(row);
  }
  const titles = [["token", 1], [data.texts[0].title, 0], [data.texts[1].title, 0], ["total variation", 1], ["KL, bits", 1], ["decided by", 0]];
  const head = make("tr", null, ...titles.map(([title, isNumber]) => make("th", { scope: "col", class: isNumber ? "number" : "" }, title)));
  const heading = make("h3", { id: "differences" }, "Where they choose differently");
  if (!body.children.length) return make("section", { class: "wide" }, heading, make("p", { class: "soft" }, "Nowhere."));
  return make("section", { class: "wide", "aria-labelledby": "differences" }, heading, make("table", { class: "rows" }, make("thead", null, head), body));
}

function drawPanel() {
  const row = rows.get(state.at), panel = $("panel");
  const top = make("p", { class: "soft" }, `token ${state.at} of ${whole(Math.max(...ids.map((own) => own.length)))}`);
  if (!row) return panel.replaceChildren(top, make("h2", { tabindex: "-1", id: "token-title" }, label(nameOf(ids[state.text][state.at]))), make("p", { class: "soft" }, "The chains were not compared here."));
  const [, tv, kl, a, b, decided] = row;
  const card = (text, id) => make("div", { class: "card" }, make("span", { class: "soft" }, text.title), make("b", null, label(nameOf(id))));
  const facts = make("dl", null, make("dt", null, "total variation"), make("dd", null, p(tv), bar(tv, "mass")), make("dt", null, "KL"), make("dd", null, kl === null ? "infinite: one chain removed what the other can draw" : decimal(kl, " bits")),
    make("dt", null, "decided by"), make("dd", null, decided.join(", ") || (differs(row) ? "the chains as a whole" : "-")));
  const said = make("p", { class: "verdict" }, differs(row) ? "The same draw gives different tokens." : "Both chains choose the same token.");
  panel.replaceChildren(make("div", { class: "head" }, top, make("h2", { tabindex: "-1", id: "token-title" }, differs(row) ? "They differ" : "The same")), make("div", { class: "cards two" }, card(data.texts[0], a), card(data.texts[1], b)), said, facts,
    make("div", { class: "copies" }, button("Copy the row", copyRow, { title: "As JSON (y)" })));
}
function copyRow() {
  const row = rows.get(state.at);
  if (!row) return notice("The chains were not compared here.");
  const [pos, tv, kl, a, b, decided] = row, named = (id) => (id === null ? null : { id, text: data.names[id] ?? "" });
  copy(JSON.stringify({ pos, tv, kl, a: named(a), b: named(b), decided }, null, 1), "Row");
}
function mark() {
  markPlace(nodes, state.text, state.at);
  for (const row of document.querySelectorAll(".rows tbody tr")) row.classList.toggle("chosen", Number(row.dataset.place) === state.at);
  drawPanel();
}
const show = () => showToken(nodes[state.text][state.at]);
function go(at) {
  if (!ids[state.text].length) return;
  state.at = Math.max(0, Math.min(ids[state.text].length - 1, at));
  mark();
  show();
}
function next(test) {
  const order = [...places.filter((at) => at > state.at), ...places.filter((at) => at <= state.at)], at = order.find((one) => test(rows.get(one)));
  if (at === undefined) return notice("There is none.");
  if (at >= ids[state.text].length) state.text = 0;
  go(at);
}
$("main").addEventListener("click", (event) => {
  const node = event.target.closest(".token[data-at]");
  if (!node) return;
  state.text = Number(node.closest("[data-text]").dataset.text);
  go(Number(node.dataset.at));
});
lightPlaces(() => nodes);
$("tools").append(choices("mode", "Colour", Object.entries(MODES).map(([mode, [text]]) => [mode, text]), state.mode, (mode) => {
  state.mode = mode;
  $("legend").replaceWith(legend());
  document.querySelector(".chart").replaceWith(chart());
  recolour();
  markPlace(nodes, state.text, state.at);
}));
bindKeys([
  ["ArrowLeft", "token before", () => go(state.at - 1)], ["ArrowRight", "token after", () => go(state.at + 1)], ["Home", "first token", () => go(0)], ["End", "last token", () => go(Infinity)],
  ["Enter", "to the details, Escape leads back", () => $("token-title")?.focus()], ["Escape", "back to the token", show],
  ["n", "next place where the chains choose differently", () => next(differs)], ["u", "next place with a total variation of .2 or more", () => next((row) => row[1] >= 0.2)],
  ["b", "the other text", () => { state.text = 1 - state.text; go(state.at); }], ["c", "next colour", () => cycle("mode")], ["y", "copy the row as JSON", copyRow],
]);
drawPage();
performance.mark("drawn");
