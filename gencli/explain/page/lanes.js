// The texts, each in a lane: tokens to choose, the chain, and a chart of surprise.
const state = { text: 0, beside: -1, token: 0, stage: 0, mode: "probability" };
const SURPRISING = 4;  // bits
const nodes = [];  // of each text: its tokens' elements
const current = () => data.texts[state.text];
const record = () => current().tokens[state.token];

// The place of a token behind so many stages: [p, rank, entropy, alive, others, [id, p ...]].
function placeAt(token, count) {
  let place = token[2];
  for (let i = 0; i < count; i++) place = token[3][i][3] || place;
  return place;
}
const last = (token) => placeAt(token, token[3].length);
const stageName = (text, token, i) => text.stages[token[3][i][0] ?? 0][0];
const decides = (text, token, name) => token[5].some((i) => stageName(text, token, i) === name);

const below = (value, ...limits) => limits.filter((limit) => value < limit).length;
const above = (value, ...limits) => limits.filter((limit) => value > limit).length;
const MODES = {
  probability: ["probability", (token) => below(token[2][0] ?? 0, 0.5, 0.1, 0.02), ["p .5 or more", ".1 to .5", ".02 to .1", "below .02"]],
  rank: ["rank", (token) => above(token[2][1] ?? Infinity, 1, 5, 20), ["rank 1", "2 to 5", "6 to 20", "above 20"]],
  entropy: ["entropy", (token) => 3 - below(token[2][2] ?? 0, 0.5, 1.5, 3), ["below .5 nats", ".5 to 1.5", "1.5 to 3", "3 or more"]],
  decided: ["decided by", (token) => Math.min(3, token[5].length), ["no stage alone", "one stage", "two", "three or more"]],
};
const levelOf = (token) => MODES[state.mode][1](token);

function drawTexts() {
  const lanes = state.beside < 0 ? [state.text] : [state.text, state.beside];
  const [one, other] = lanes.map((index) => data.texts[index].tokens.map(([id]) => id)), parts = other ? partOf(one, other) : -1;
  nodes.length = 0;
  const holder = make("div", { class: "lanes" }, ...lanes.map((index) => lane(data.texts[index], index, parts)));
  const between = other ? parting(one, other, parts) : null;
  $("main").replaceChildren(legend(), ...(between ? [between] : []), holder);
  recolour();
  mark();
}
function legend() {
  const row = make("p", { class: "legend", id: "legend" });
  MODES[state.mode][2].forEach((text, level) => row.append(make("span", { class: "token sample", "data-level": level }, text), " "));
  row.append(make("span", { class: "soft" }, "The thicker the line, the more surprising the token."));
  return row;
}
function lane(text, index, parts) {
  const section = make("section", { class: "lane", "aria-label": text.title });
  const bits = text.tokens.reduce((sum, token) => sum + (token[1] ?? 0), 0), count = text.tokens.length;
  const decided = text.tokens.filter((token) => token[5].length).length;
  const facts = [`${text.facts.model}, seed ${text.facts.seed}`, some(count, "token"), `${decimal(bits, "", 1)} bits, ${decimal(count ? bits / count : 0)} a token`, `${whole(decided)} decided by a stage`];
  if (text.reason) facts.push(`ended by ${text.reason}`);
  const [list, own] = tokenList(text.tokens.map(([id]) => id), { index, prompt: text.prompt, title: text.title, parts, labelOf: (at) => p(text.tokens[at][2][0]) });
  own.forEach((node, at) => thicken(node, text.tokens[at][1] ?? 20));
  nodes[index] = own;
  section.append(make("div", { class: "lane-head" }, make("h2", null, text.title), make("p", { class: "soft" }, facts.join(" \u00b7 "))),
    chain(text, index), chart(text, index), list);
  return section;
}
// The stages of a text in their order; each leads to the next token that it decided.
function chain(text, index) {
  const row = make("ol", { class: "chain", "aria-label": "Chain" });
  for (const [name, params] of text.stages) {
    const count = text.tokens.filter((token) => decides(text, token, name)).length;
    const node = button(make("span", { class: "name" }, quoted(params, 40).slice(1, -1)), () => {
      if (index !== state.text) swap(index);
      next((token) => decides(text, token, name));
    }, { class: "chip", title: "The next token that this stage decided" });
    node.append(make("b", null, count ? ` decided ${whole(count)}` : ""));
    row.append(make("li", null, node));
  }
  return row;
}

function chart(text, index) {
  const pick = (at) => { if (index !== state.text) swap(index); go(at); };
  return barChart({ values: text.tokens.map((token) => token[1]), levels: text.tokens.map(levelOf), title: "surprise", unit: " bits", index, pick });
}
function recolour() {
  nodes.forEach((own, index) => own.forEach((node, at) => { node.dataset.level = levelOf(data.texts[index].tokens[at]); }));
}
function recolourAll() {
  $("legend").replaceWith(legend());
  for (const figure of document.querySelectorAll(".chart")) figure.replaceWith(chart(data.texts[figure.dataset.chart], Number(figure.dataset.chart)));
  recolour();
  markPlace(nodes, state.text, state.token);
}

function mark() {
  markPlace(nodes, state.text, state.token);
  drawPanel();
}
const show = () => showToken(nodes[state.text]?.[state.token]);
