// The panel of a token: its numbers, what decided it, its way through the stages, and what else could have come.
const MOST_BARS = 20;

function pairs(flat, size) {
  const found = [];
  for (let i = 0; i < flat.length; i += size) found.push(flat.slice(i, i + size));
  return found;
}
// A stage: [number, acted, mass kept, place, removed, changed, note, why not]; what is absent at the end is empty.
function stageAt(token, i) {
  const [number = 0, acted = 0, kept = 0, , removed = [], changed = [], note = "", whyNot = ""] = token[3][i];
  return { number, acted, kept, removed: pairs(removed, 2), changed: pairs(changed, 3), note, whyNot };
}

function drawPanel() {
  const panel = $("panel"), text = current(), token = record();
  if (!token) return panel.replaceChildren(make("p", { class: "soft" }, "This text has no tokens."));
  state.stage = Math.min(state.stage, token[3].length);
  const after = make("section", { id: "after", "aria-labelledby": "after-title" });
  panel.replaceChildren(head(text, token), verdict(text, token), stageTable(text, token), slider(token), after, alternatives(text, token), copies(text));
  drawStage();
}
function head(text, token) {
  const raw = token[2], final = last(token);
  const card = (title, place, more) => make("div", { class: "card" }, make("span", { class: "soft" }, title), make("b", null, p(place[0])), make("span", null, rankOf(place[1])), make("span", { class: "soft" }, more));
  return make("div", { class: "head" },
    make("p", { class: "soft" }, `token ${state.token} of ${whole(text.tokens.length)} \u00b7 id ${token[0]}`),
    make("h2", { tabindex: "-1", id: "token-title" }, label(nameOf(token[0]))),
    make("div", { class: "cards" }, card("model", raw, `of ${whole(raw[3])}`), card("drawn from", final, `of ${whole(final[3])}`),
      make("div", { class: "card" }, make("span", { class: "soft" }, "surprise"), make("b", null, token[1] === null ? "\u221e" : decimal(token[1])), make("span", null, "bits"), make("span", { class: "soft" }, `entropy ${decimal(raw[2])}`))));
}
function verdict(text, token) {
  const names = token[5].map((i) => stageName(text, token, i)), [kind, margin, runner] = token[4], forgone = token[6];
  const parts = names.length ? ["Decided by ", make("strong", null, names.join(", ")), ". "] : ["No stage alone decided it. "];
  names.forEach((name, i) => {
    const other = token[8][i] ?? null;
    parts.push(names.length > 1 ? `Without ${name}` : "Without it", " the same draw gives ", other === null ? "another token" : label(nameOf(other)), ". ");
  });
  if (forgone) parts.push("Without truncation ", label(nameOf(forgone[0])), ` comes (model p ${p(forgone[1])}), which ${forgone[2]} removed. `);
  if (runner === null || runner === undefined) parts.push(`Nothing else could be drawn (${kind}).`);
  else parts.push(`Runner-up of the draw (${kind}): `, label(nameOf(runner)), margin === null ? "." : `, ${decimal(margin)} behind.`);
  return make("p", { class: "verdict" }, ...parts);
}

function stageTable(text, token) {
  const body = make("tbody"), most = Math.log(Math.max(2, token[2][3]));
  for (let i = 0; i <= token[3].length; i++) {
    const place = placeAt(token, i), stage = i ? stageAt(token, i - 1) : null;
    const [name, params] = stage ? text.stages[stage.number] : ["model", "The distribution of the model"];
    const row = make("tr", { "data-stage": i, class: stage && !stage.acted ? "idle" : "" });
    const choice = button(name, () => turn(i - state.stage), { class: "link", title: params });
    const left = make("td", { class: "number" }, whole(place[3]), bar(Math.log(place[3] || 1) / most, "funnel"));
    const mark = stage && token[5].includes(i - 1) ? make("span", { class: "decided", title: "It decided the token" }, "\u25c6", make("span", { class: "hidden" }, "decided")) : null;
    row.append(make("th", { scope: "row" }, choice, mark), left, make("td", { class: "number" }, stage ? p(stage.kept) : ""),
      make("td", { class: "number" }, p(place[0])), make("td", { class: "number" }, rankOf(place[1])));
    row.addEventListener("click", (event) => { if (!event.target.closest("button")) turn(i - state.stage); });
    body.append(row);
  }
  const titles = make("tr", null, ...["stage", "left", "kept", "p", "rank"].map((title, i) => make("th", { scope: "col", class: i ? "number" : "" }, title)));
  return make("table", { class: "stages" }, make("caption", { class: "hidden" }, "The token behind each stage"), make("thead", null, titles), body);
}
function slider(token) {
  const input = make("input", { type: "range", min: 0, max: token[3].length, step: 1, id: "slider", "aria-label": "Stage" });
  input.addEventListener("input", () => { state.stage = Number(input.value); drawStage(); });
  return input;
}

// What depends on the stage alone, so that a slider or a button keeps the focus.
function drawStage() {
  const text = current(), token = record(), place = placeAt(token, state.stage);
  const title = state.stage ? `After ${stageName(text, token, state.stage - 1)}` : "Of the model";
  for (const row of document.querySelectorAll(".stages tbody tr")) {
    const chosen = Number(row.dataset.stage) === state.stage;
    row.classList.toggle("chosen", chosen);
    row.querySelector("button").setAttribute("aria-pressed", String(chosen));
  }
  $("slider").value = state.stage;
  $("slider").setAttribute("aria-valuetext", title);
  $("after").replaceChildren(make("h3", { id: "after-title" }, title), bars(token, place), ...(state.stage ? details(stageAt(token, state.stage - 1)) : []));
}
function bars(token, place) {
  const raw = new Map(pairs(token[2][5], 2)), before = new Map(state.stage ? pairs(placeAt(token, state.stage - 1)[5], 2) : []);
  const most = Math.max(0.01, ...token[3].map((_, i) => placeAt(token, i + 1)[5][1] ?? 0), token[2][5][1] ?? 0);
  const list = make("ul", { class: "bars", id: "bars" }), shownOnes = pairs(place[5], 2).slice(0, MOST_BARS);
  for (const [id, value] of shownOnes) list.append(barRow(nameOf(id), value, most, raw.get(id), before.get(id), id === token[0] ? "own" : ""));
  const rest = pairs(place[5], 2).slice(MOST_BARS).reduce((sum, pair) => sum + pair[1], place[4] ?? 0);
  const count = place[3] - shownOnes.length;
  if (count > 0) list.append(barRow(some(count, "other"), rest, most, undefined, undefined, "rest"));
  if (!shownOnes.some(([id]) => id === token[0]) && place[0] !== null) list.append(make("li", { class: "note" }, make("span", null, `The token itself has p ${p(place[0])}, ${rankOf(place[1])}.`)));
  const scale = make("p", { class: "soft scale" }, `Full width is p ${p(most)}${rest > most && count > 0 ? "; the bar that fades is longer" : ""}.${state.stage ? " The thin line is p under the model." : ""}`);
  return make("div", null, list, scale);
}
function barRow(name, value, most, raw, before, kind) {
  const row = make("li", { class: kind }), line = bar(before === undefined ? value / most : before / most), inner = line.firstChild;
  if (state.stage && raw !== undefined) {
    const tick = make("u");
    tick.style.insetInlineStart = `${(100 * Math.min(1, raw / most)).toFixed(2)}%`;
    line.append(tick);
  }
  line.classList.toggle("over", value > most);
  requestAnimationFrame(() => { inner.style.width = `${Math.min(100, (100 * value) / most).toFixed(2)}%`; });
  row.append(kind === "rest" ? make("span", { class: "soft" }, name) : label(name), line, make("span", { class: "number" }, p(value)));
  return row;
}
function details(stage) {
  const found = [];
  if (stage.note) found.push(make("p", null, shown(stage.note)));
  if (stage.whyNot) found.push(make("p", { class: "soft" }, `It changed nothing here: ${shown(stage.whyNot)}.`));
  const listed = (title, entries) => found.push(make("h4", null, title), make("ul", { class: "inline" }, ...entries.map(([id, text]) => make("li", null, label(nameOf(id)), ` ${text}`))));
  if (stage.removed.length) listed("Most likely of those removed", stage.removed.map(([id, value]) => [id, p(value)]));
  if (stage.changed.length) listed("Logits moved most", stage.changed.map(([id, before, after]) => [id, `${decimal(before)} \u2192 ${decimal(after)}`]));
  if (!found.length && !stage.acted) found.push(make("p", { class: "soft" }, "It changed nothing here."));
  return found;
}

// What else could have come: every token that a list of the record names, with p under the model where it is
// known, and its fate. A list is complete if it has as many ids as are left: who is missing there was removed.
function alternatives(text, token) {
  const fates = new Map(), raw = new Map(pairs(token[2][5], 2)), final = new Map(pairs(last(token)[5], 2));
  const lists = Array.from({ length: token[3].length + 1 }, (_, i) => placeAt(token, i));
  for (const place of lists) for (const [id] of pairs(place[5], 2)) fates.set(id, null);
  token[3].forEach((_, i) => stageAt(token, i).removed.forEach(([id]) => fates.set(id, i)));
  if (token[6]) fates.set(token[6][0], fates.get(token[6][0]) ?? null);
  fates.delete(token[0]);
  const rows = [...fates].map(([id, stage]) => {
    const known = raw.get(id) ?? (token[6] && token[6][0] === id ? token[6][1] : undefined), end = final.get(id);
    const by = stage ?? (end === undefined ? remover(token, lists, id) : null);
    const fate = end !== undefined ? [`left, p ${p(end)}`] : by !== null ? ["removed by ", make("strong", null, stageName(text, token, by))] : ["in no list at the end"];
    const signs = [id === token[4][2] ? "runner-up" : "", token[6] && token[6][0] === id ? "forgone" : ""].filter(Boolean).join(", ");
    return { known: known ?? -1, node: make("tr", { class: end === undefined ? "gone" : "" }, make("th", { scope: "row" }, label(nameOf(id))), make("td", { class: "number" }, known === undefined ? "" : p(known)), make("td", null, ...fate, signs ? ` (${signs})` : "")) };
  }).sort((one, other) => other.known - one.known);
  const section = make("section", { "aria-labelledby": "alternatives" }, make("h3", { id: "alternatives", tabindex: "-1" }, "Alternatives"));
  if (!rows.length) return make("section", null, section.firstChild, make("p", { class: "soft" }, "The record names none."));
  const titles = make("tr", null, make("th", { scope: "col" }, "token"), make("th", { scope: "col", class: "number" }, "model p"), make("th", { scope: "col" }, "what became of it"));
  section.append(make("table", { class: "others" }, make("thead", null, titles), make("tbody", null, ...rows.map((row) => row.node))));
  return section;
}
// The stage that removed an id, if the lists leave only one that can have done it.
function remover(token, lists, id) {
  const has = (place) => pairs(place[5], 2).some(([one]) => one === id);
  const gone = lists.findIndex((place) => place[3] === place[5].length / 2 && !has(place));
  if (gone < 1) return null;
  const seen = lists.slice(0, gone).findLastIndex(has);
  const able = token[3].map((_, i) => i).filter((i) => i >= Math.max(0, seen) && i < gone && lists[i + 1][3] < lists[i][3]);
  return able.length === 1 ? able[0] : null;
}

// The record in the fields of a trace.
function asRecord(text, at) {
  const token = text.tokens[at], named = (entries) => entries.map(([id, ...rest]) => [id, data.names[id] ?? "", ...rest]);
  const view = (place) => ({ p: place[0], rank: place[1], logit: place[6], entropy: place[2], top: named(pairs(place[5], 2)), others: place[4] });
  const spelled = () => btoa(String.fromCharCode(...new TextEncoder().encode((data.names[token[0]] ?? "").slice(0, 20000))));
  return {
    run: text.run, sample: text.sample, pos: at, id: token[0], text: data.names[token[0]] ?? "", bytes: data.bytes[token[0]] ?? spelled(),
    raw: { ...view(token[2]), alive: token[2][3] }, final: { ...view(last(token)), alive: last(token)[3] }, surprise: token[1],
    stages: token[3].map((_, i) => {
      const { number, acted, kept, removed, changed, note, whyNot } = stageAt(token, i), [name, params] = text.stages[number];
      return { name, params, acted: Boolean(acted), alive: [placeAt(token, i)[3], placeAt(token, i + 1)[3]], mass_kept: kept, ...view(placeAt(token, i + 1)), removed: named(removed), changed: named(changed), note, why_not: whyNot };
    }),
    draw: { kind: token[4][0], greedy: token[4][0] === "greedy", forced: last(token)[3] === 1, margin: token[4][1], runner_up: token[4][2] === null ? null : [token[4][2], data.names[token[4][2]] ?? ""] },
    decided_by: token[5].map((i) => stageName(text, token, i)),
    instead: token[8].map((id) => (id === null ? null : [id, data.names[id] ?? ""])),
    mask: token[7] ? { constrained_by: token[7].slice(1), n_masked: token[7][0] } : { constrained_by: [], n_masked: 0 },
    forgone: token[6] ? { id: token[6][0], text: data.names[token[6][0]] ?? "", p: token[6][1], removed_by: token[6][2] } : null,
  };
}
const copyRecord = () => record() && copy(JSON.stringify(asRecord(current(), state.token), null, 1), "Record");
const copyCommand = () => (current().command ? copy(current().command, "Command") : notice("The trace does not tell this text's command."));
function copies(text) {
  const row = make("div", { class: "copies" }, button("Copy the record", copyRecord, { title: "As JSON (y)" }));
  if (!text.command) return row;
  row.append(button("Copy the command", copyCommand, { title: "That makes the text again (Y)" }));
  return make("section", { "aria-label": "Copies" }, row, make("pre", { class: "command", tabindex: "0", "aria-label": "Command" }, shown(text.command)),
    make("p", { class: "soft" }, "A trace does not tell of guidance, templates, grammars and defaults of the model: a run that had them needs their options too."));
}
