// Keys, clicks and the toolbar of the page of texts.
function go(at) {
  const count = current().tokens.length;
  if (!count) return;
  state.token = Math.max(0, Math.min(count - 1, at));
  mark();
  show();
}
function next(test) {
  const tokens = current().tokens;
  for (let step = 1; step <= tokens.length; step++) {
    const at = (state.token + step) % tokens.length;
    if (test(tokens[at])) return go(at);
  }
  notice("There is none.");
}
function turn(step) {
  const token = record();
  if (!token) return;
  state.stage = Math.max(0, Math.min(token[3].length, state.stage + step));
  drawStage();
  const place = placeAt(token, state.stage);
  $("said").textContent = `${$("after-title").textContent}: ${whole(place[3])} left, p ${p(place[0])}, rank ${place[1] ?? "masked"}`;
}
// The text becomes the chosen one; beside another it stays in its lane.
function swap(index) {
  if (state.beside === index) [state.text, state.beside] = [state.beside, state.text];
  else state.text = index;
  $("which").value = state.text;
  if ($("beside")) $("beside").value = state.beside;
}
function choose(index) {
  if (state.beside === index) state.beside = -1;
  state.token = state.stage = 0;
  swap(index);
  drawTexts();
  $("said").textContent = shown(current().title);
}
let found = { wanted: "", at: [], now: -1 };
function find() {
  const wanted = $("wanted").value.toLowerCase(), tokens = current().tokens;
  if (!wanted) { $("found").textContent = ""; return; }
  const starts = [];
  let text = "", at = -1;
  for (const token of tokens) { starts.push(text.length); text += (data.names[token[0]] ?? "").toLowerCase(); }
  const places = [];
  while ((at = text.indexOf(wanted, at + 1)) >= 0) places.push(starts.findLastIndex((start) => start <= at));
  const same = found.wanted === wanted && found.text === state.text;
  found = { wanted, text: state.text, now: places.length ? (same ? (found.now + 1) % places.length : 0) : -1 };
  $("found").textContent = places.length ? `${found.now + 1} of ${places.length}` : "not found";
  if (!places.length) return;
  state.token = places[found.now];
  mark();
  nodes[state.text][state.token].scrollIntoView({ block: "nearest" });
}
function tools() {
  const all = data.texts.map((text, index) => [index, `${text.run}, sample ${text.sample}`]), row = $("tools");
  row.append(chooser("which", "Text", all, 0, (value) => choose(Number(value))));
  if (all.length > 1) {
    row.append(chooser("beside", "Beside", [[-1, "none"], ...all], -1, (value) => {
      state.beside = Number(value) === state.text ? -1 : Number(value);
      drawTexts();
    }));
  }
  row.append(choices("mode", "Colour", Object.entries(MODES).map(([mode, [text]]) => [mode, text]), state.mode, (mode) => { state.mode = mode; recolourAll(); }));
  const search = make("form", { role: "search" }, make("label", null, make("span", { class: "hidden" }, "Find a text"), make("input", { type: "search", id: "wanted", placeholder: "Find (f)", autocomplete: "off" })), make("span", { id: "found", class: "soft", role: "status" }));
  search.addEventListener("submit", (event) => { event.preventDefault(); find(); });
  search.addEventListener("keydown", (event) => { if (event.key === "Escape") show(); });
  row.append(search);
}

$("main").addEventListener("click", (event) => {
  const node = event.target.closest(".token[data-at]");
  if (!node) return;
  const index = Number(node.closest("[data-text]").dataset.text);
  if (index !== state.text) swap(index);
  go(Number(node.dataset.at));
});
lightPlaces(() => (state.beside < 0 ? [] : nodes));

bindKeys([
  ["ArrowLeft", "token before", () => go(state.token - 1)], ["ArrowRight", "token after", () => go(state.token + 1)],
  ["ArrowUp", "stage before", () => turn(-1)], ["ArrowDown", "stage after", () => turn(1)],
  ["Home", "first token", () => go(0)], ["End", "last token", () => go(Infinity)],
  ["Enter", "to the details, Escape leads back", () => $("token-title")?.focus()], ["Escape", "back to the token", show],
  ["n", "next token that a stage decided", () => next((token) => token[5].length)],
  ["u", `next surprising token (${SURPRISING} bits or more)`, () => next((token) => token[1] === null || token[1] >= SURPRISING)],
  ["f", "find a text", () => $("wanted").focus()],
  ["a", "alternatives of the token", () => { $("sheet").setAttribute("aria-expanded", "true"); $("alternatives")?.focus(); }],
  ["b", "next text", () => choose((state.text + 1) % data.texts.length)], ["c", "next colour", () => cycle("mode")],
  ["y", "copy the token's record as JSON", copyRecord], ["Y", "copy the command that makes the text again", copyCommand],
]);
tools();
if (data.texts.length) drawTexts();
performance.mark("drawn");
