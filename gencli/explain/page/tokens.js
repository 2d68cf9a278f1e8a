// Tokens in their text, and a chart with a bar for each.
function paragraph(list) {
  const line = make("div", { class: "line", role: "presentation", dir: "auto" });
  list.append(line);
  return line;
}
// Return the list of a text and its tokens' elements. A line ends behind a token with a newline.
function tokenList(ids, { index, prompt, title, parts, labelOf }) {
  const list = make("div", { class: "tokens", role: "listbox", "aria-orientation": "horizontal", "data-text": index, "aria-label": `Tokens of ${title} behind the prompt ${quoted(prompt, 200)}` });
  let line = paragraph(list);
  line.append(fill(make("span", { class: "prompt", "aria-hidden": "true", dir: "auto" }), prompt));
  const own = ids.map((id, at) => {
    const text = data.names[id] ?? "", isPart = at === parts;
    const node = make("span", { class: isPart ? "token parts" : "token", role: "option", "aria-selected": "false", tabindex: "-1", "data-at": at, "aria-label": `${quoted(text)}, ${labelOf(at)}${isPart ? ", here the texts part" : ""}` });
    if (/^ [^ \n]/.test(text)) line.append(" ");  // a space before a word stays plain, as lines break behind it
    line.append(fill(node, text.replace(/^ (?=[^ \n])/, ""), `\u27e8${id}\u27e9`));
    if (text.includes("\n")) line = paragraph(list);
    return node;
  });
  return [list, own];
}
// The line under a token: half a pixel a bit, none below one bit.
function thicken(node, bits) {
  node.classList.toggle("thick", bits >= 1);
  if (bits >= 1) node.style.setProperty("--thick", `${Math.min(6, bits / 2).toFixed(1)}px`);
}
function partOf(one, other) {
  for (let i = 0; i < Math.max(one.length, other.length); i++) if (one[i] !== other[i]) return i;
  return -1;
}
function parting(one, other, parts) {
  if (parts < 0) return make("p", { class: "between" }, "The two texts are the same.");
  const token = (ids) => (ids.length > parts ? label(nameOf(ids[parts])) : "the end");
  return make("p", { class: "between" }, `The same for ${some(parts, "token")}, then they part at `, make("span", { class: "parts" }, " bars like this"), ": ", token(one), " and ", token(other), ".");
}
// Mark the chosen place in all lists; only the chosen one of `lists` takes the focus.
function markPlace(lists, chosen, at) {
  for (const node of document.querySelectorAll('.token[aria-selected="true"], .token.also')) {
    node.setAttribute("aria-selected", "false");
    node.classList.remove("also");
    node.tabIndex = -1;
  }
  lists.forEach((own, index) => {
    if (index !== chosen) return own[at]?.classList.add("also");
    own[at]?.setAttribute("aria-selected", "true");
    if (own[at]) own[at].tabIndex = 0;
  });
  for (const now of document.querySelectorAll(".chart .now")) now.setAttribute("x", at);
}
function showToken(node) {
  node?.focus({ preventScroll: true });
  node?.scrollIntoView({ block: "nearest" });
}
// Where the pointer is in one text, the others are lit at the same place.
function lightPlaces(lists) {
  const light = (at) => {
    for (const node of document.querySelectorAll(".token.lit")) node.classList.remove("lit");
    if (at !== undefined) lists().forEach((own) => own[at]?.classList.add("lit"));
  };
  $("main").addEventListener("mouseover", (event) => light(event.target.closest(".token[data-at]")?.dataset.at));
  $("main").addEventListener("mouseleave", () => light());
}

// A bar for each token. The four levels are four paths, so that a long text is no more elements than a short one.
function barChart({ values, levels, title, unit, index, pick }) {
  const most = Math.max(...values.map((value) => value ?? 0), 1e-9), count = Math.max(1, values.length);
  const picture = drawn("svg", { viewBox: `0 0 ${count} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const paths = ["", "", "", ""];
  values.forEach((value, at) => { paths[levels[at]] += `M${at + 0.08} 100h.84v-${Math.max(1.5, (100 * (value ?? most)) / most).toFixed(1)}h-.84z`; });
  paths.forEach((path, level) => picture.append(drawn("path", { d: path, "data-level": level })));
  picture.append(drawn("rect", { class: "now", x: 0, y: 0, width: 1, height: 100 }));
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    pick(Math.floor((count * (event.clientX - box.left)) / box.width));
  });
  return make("figure", { class: "chart", "data-chart": index }, picture, make("figcaption", null, make("span", null, title), make("span", null, values.length ? `most ${decimal(most, unit)}` : "")));
}
