"use strict";
// Texts of users are set as text, never as markup.
const $ = (id) => document.getElementById(id);
const MOST_BARS = 10;
let run = null, asked = null, shown = null, undoable = [], fields = 0;

function made(tag, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

function say(text, kind = "") {
  $("status").textContent = text;
  $("status").className = "status " + kind;
}

async function ask(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("hma token");
  if (token) headers["Authorization"] = "Bearer " + token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const how = body === undefined ? { headers } :
    { method: "POST", headers, body: JSON.stringify(body) };
  let reply;
  try {
    reply = await fetch(path, how);
  } catch {
    throw new Error("the server does not answer");
  }
  const values = await reply.json().catch(() => ({ error: "the server is busy; try again" }));
  if (reply.status === 401) $("token-form").hidden = false;
  if (!reply.ok) throw new Error(values.error || "the server answered " + reply.status);
  return values;
}

async function busy(form, work) {
  const buttons = [...form.querySelectorAll("button")].map((one) => [one, one.disabled]);
  buttons.forEach(([one]) => { one.disabled = true; });
  try {
    await work();
  } catch (error) {
    say(error.message, "bad");
  } finally {
    buttons.forEach(([one, before]) => { one.disabled = before; });
    $("undo").disabled = undoable.length === 0;
  }
}

function field(name, input, long = false) {
  const id = "field-" + (fields += 1);
  input.id = id;
  return made("div", { className: long ? "field long" : "field" },
    made("label", { htmlFor: id, textContent: name }), input);
}

function choices(values) {
  const select = made("select");
  values.forEach(([value, text]) => select.append(made("option", { value, textContent: text })));
  return select;
}

// ------------------------------------------------------------------ what is asked

function buildFields() {
  const place = $("fields");
  place.className = "fields";
  for (const column of run.columns) {
    if (column.kind === "empty") continue;
    let input;
    if (column.kind === "category") {
      input = choices([["", "(missing)"], ...column.values.map((value) => [value, value])]);
    } else {
      input = made("input", { placeholder: column.like, autocomplete: "off" });
    }
    input.dataset.column = column.name;
    place.append(field(column.name, input));
  }
  if (run.kind === "text") place.append(field("Text", made("textarea", { name: "text" }), true));
  if (run.kind === "image") {
    const file = made("input", { type: "file", accept: "image/*", name: "image" });
    const preview = made("img", { className: "preview", alt: "", hidden: true });
    file.addEventListener("change", async () => {
      preview.hidden = file.files.length === 0;
      if (file.files.length) preview.src = await asAddress(file.files[0]);
    });
    place.append(field("Image", file, true), preview);
  }
  place.hidden = run.kind === "graph";
  $("place-field").hidden = run.places === 0;
  const last = run.places - 1;
  $("place-label").textContent = (run.kind === "graph" ? "Graph" : "Or row") +
    " of the source, 0 to " + last;
}

function asAddress(file) {
  return new Promise((found, failed) => {
    const reader = new FileReader();
    reader.onload = () => found(reader.result);
    reader.onerror = () => failed(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}

async function rowAsked() {
  const place = $("place").value.trim();
  if (place !== "") {
    if (!/^\d+$/.test(place)) throw new Error("a row of the source is a whole number");
    return { places: [Number(place)] };
  }
  if (run.kind === "table") {
    const row = Object.create(null);
    run.columns.forEach((column) => { row[column.name] = null; });
    document.querySelectorAll("[data-column]").forEach((input) => {
      row[input.dataset.column] = input.value === "" ? null : input.value;
    });
    return { rows: [row] };
  }
  if (run.kind === "text") return { texts: [$("fields").querySelector("textarea").value] };
  if (run.kind === "image") {
    const file = $("fields").querySelector("input").files[0];
    if (!file) throw new Error("choose an image, or a row of the source");
    return { images: [await asAddress(file)] };
  }
  throw new Error("choose a graph of the source");
}

// --------------------------------------------------------------- what is answered

const percent = (share) => (100 * share).toFixed(1) + "%";

function showAnswer(found) {
  shown = found;
  $("answer").hidden = $("voted").hidden = false;
  $("what").textContent = found.what;
  $("said").textContent = found.prediction.answer;
  const bars = Object.entries(found.prediction.probabilities || {});
  bars.sort((one, other) => other[1] - one[1]);
  $("bars").replaceChildren(...bars.slice(0, MOST_BARS).flatMap(([name, share]) => {
    const fill = made("div", { className: "fill" });
    fill.style.setProperty("--w", 100 * share);
    return [made("span", { textContent: name }), made("div", { className: "track" }, fill),
      made("span", { textContent: percent(share) })];
  }));
  showPromise(found.prediction);
  $("notes").textContent = found.notes.join("; ");
  const counts = found.memory_counts;
  const beside = counts === 1 ? "" : "The memory says " + found.memory.answer +
    " and counts " + percent(counts) + " in the answer, given by " + found.by + ". ";
  $("voted-lead").textContent = beside + (found.adds_up ?
    "Shares of what the memory says." : "Shares of attention: what was read, not what decided.") +
    " Version " + found.version + " of the memory.";
  $("voters").replaceChildren(...found.voters.map(voter));
}

function showPromise(said) {
  const share = run.coverage === null ? "" : " (holds for " + percent(run.coverage) + " of rows)";
  let text = "";
  if (said.labels && said.labels.length > 1) text = "May be " + said.labels.join(", ") + share;
  else if (said.labels) text = "No other label is likely" + share;
  else if (said.from !== undefined) {
    text = "From " + said.from.toPrecision(4) + " to " + said.to.toPrecision(4) + share;
  }
  $("promised").textContent = text;
  $("promised").hidden = text === "";
  $("unknown").hidden = !said.unknown;
}

function voter(one) {
  const item = made("li", { className: one.kind === "taught row" ? "taught" : "" });
  if (one.picture) item.append(made("img", { src: one.picture, alt: "" }));
  item.append(made("b", { textContent: percent(one.share) }), " " + one.label,
    made("p", { textContent: one.what }),
    made("p", { className: "small", textContent: one.kind + (one.id === null ? "" : " " + one.id) }));
  if (one.id !== null) {
    const button = made("button", { type: "button", textContent: "Forget" });
    button.addEventListener("click", () => busy($("voted"), () => confirmed("/forget", { ids: [one.id] })));
    item.append(button);
  }
  return item;
}

// ------------------------------------------------------------------ what is taught

function buildLabels() {
  const place = $("label-fields"), names = run.labels.names;
  place.replaceChildren();
  if (run.labels.kind === "classes") {
    const known = made("datalist", { id: "classes" });
    names.forEach((name) => known.append(made("option", { value: name })));
    const input = made("input", { autocomplete: "off", name: "label" });
    input.setAttribute("list", "classes");
    const fresh = made("input", { type: "checkbox", name: "new" });
    place.append(known, field("Right label", input), field("Let a new class in", fresh));
  } else if (run.labels.kind === "number") {
    const input = made("input", { autocomplete: "off", name: "label", inputMode: "decimal" });
    place.append(field(names[0], input));
  } else {
    for (const name of names) {
      const input = run.labels.kind === "yes/no" ?
        choices([["", "unknown"], ["yes", "yes"], ["no", "no"]]) :
        made("input", { autocomplete: "off", inputMode: "decimal", value: "0" });
      input.dataset.label = name;
      place.append(field(name, input));
    }
  }
}

function labelGiven() {
  const several = [...$("label-fields").querySelectorAll("[data-label]")];
  if (several.length) {
    return Object.fromEntries(several.map((one) => [one.dataset.label, one.value || null]));
  }
  return $("label-fields").querySelector('[name="label"]').value.trim();
}

async function change(path, body) {
  $("confirm").hidden = true;
  const before = shown.prediction.answer;
  const version = await ask(path, body);
  if (path === "/restore") undoable.pop();
  else undoable.push(version.parent);
  await refresh();
  const after = shown.prediction.answer;
  say("Version " + version.number + ": " + version.said + ". " +
    (before === after ? "Still " + after : before + " → " + after) + ".", "good");
}

async function confirmed(path, body) {
  try {
    await change(path, body);
  } catch (error) {
    // a class would have no row left, or a test row would vote: asked again, by a button of its own
    if (!error.message.includes('"yes": true')) throw error;
    say(error.message.replace('; send "yes": true to do it', "."), "bad");
    $("confirm").hidden = false;
    $("sure").onclick = () => busy($("confirm"), () => change(path, { ...body, yes: true }));
    $("sure").focus();
  }
}

async function refresh() {
  run = await ask("/run");
  const label = labelGiven();
  buildLabels();
  const input = $("label-fields").querySelector('[name="label"]');
  if (input) input.value = label;
  showAnswer(await ask("/explain", asked));
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  busy($("ask"), async () => {
    const row = await rowAsked();
    $("confirm").hidden = true;
    say("");
    showAnswer(await ask("/explain", row));
    asked = row;
  });
});

$("teach").addEventListener("submit", (event) => {
  event.preventDefault();
  busy($("teach"), async () => {
    const fresh = $("label-fields").querySelector('[name="new"]');
    await confirmed("/remember", { ...asked, labels: [labelGiven()],
      new_classes: Boolean(fresh && fresh.checked) });
  });
});

$("undo").addEventListener("click", () => busy($("teach"), async () => {
  await change("/restore", { version: undoable[undoable.length - 1], now: run.version });
}));

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("hma token", $("token").value);
  start();
});

async function start() {
  try {
    run = await ask("/run");
  } catch (error) {
    say(error.message, "bad");
    return;
  }
  say("");
  $("token-form").hidden = true;
  $("name").textContent = run.name;
  document.title = run.name + " · hma serve";
  $("about").textContent = run.deployed;
  $("fields").replaceChildren();
  buildFields();
  buildLabels();
  $("work").hidden = false;
}

start();
