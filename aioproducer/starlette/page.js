// Shows what the feed says. Figures go into text nodes, never into markup.

const SVG = "http://www.w3.org/2000/svg";
const MOODS = { ready: "good", running: "good", throttled: "wait", connecting: "wait",
  handshaking: "wait", disconnected: "wait" };
const LONGEST_WAIT_MS = 10000;

const element = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const past = { per_second: [], p99_ms: [], buffer: [] };
let paused = false;
let wait = 500;

const whole = (value) => count.format(Math.round(value));
const short = (value) => value === null ? "–" : value < 100 ? value.toFixed(1) : whole(value);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${bytes < 10 && unit ? bytes.toFixed(1) : whole(bytes)} ${units[unit]}`;
}

function age(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

function put(id, text) {
  const node = element(id);
  if (node.textContent !== text) node.textContent = text;
}

function make(name, properties = {}, ...children) {
  const node = document.createElement(name);
  Object.assign(node, properties);
  node.append(...children);
  return node;
}

function status(text, mood) {
  put("status", text);
  element("status").dataset.mood = mood;
}

// Adds what is new since the last message; the first message of a connection has all points.
function keep(now) {
  for (const [name, points] of Object.entries(past)) {
    points.push(...now[name]);
    points.splice(0, points.length - now.kept);
  }
}

function forget() {
  for (const points of Object.values(past)) points.length = 0;
}

// Runs of points that follow each other: without records there is no latency, hence no line.
function runs(points) {
  const found = [[]];
  points.forEach((value, index) => {
    if (value === null) found.push([]);
    else found.at(-1).push([index, value]);
  });
  return found.filter((run) => run.length);
}

function draw(svg, name, commands) {
  const path = svg.querySelector(`.${name}`) ?? svg.appendChild(document.createElementNS(SVG, "path"));
  path.setAttribute("class", name);
  path.setAttribute("d", commands.join(""));
}

function line(id, name, unit, points, spanS, text, top = 0) {
  const known = points.filter((value) => value !== null);
  if (!known.length) return;
  const highest = Math.max(...known);
  const scale = Math.max(top, highest) || 1;
  const step = 300 / Math.max(1, points.length - 1);
  const at = ([index, value]) => `${(index * step).toFixed(1)} ${(98 - 92 * value / scale).toFixed(1)}`;
  const parts = runs(points).map((run) => run.length > 1 ? run : [run[0], [run[0][0] + 0.5, run[0][1]]]);
  const x = (run, which) => (run.at(which)[0] * step).toFixed(1);
  const svg = element(`${id}-line`);
  draw(svg, "area", parts.map((run) => `M${x(run, 0)} 100L${run.map(at).join("L")}L${x(run, -1)} 100Z`));
  draw(svg, "value", parts.map((run) => `M${run.map(at).join("L")}`));
  const now = points.at(-1);
  put(`${id}-since`, spanS ? `${age(Math.round(spanS))} ago` : "");
  put(`${id}-highest`, `highest ${text(highest)}${unit}`);
  svg.setAttribute("aria-label", `${name} over the last ${age(Math.round(spanS))}: ` +
    `now ${now === null ? "none" : text(now) + unit}, highest ${text(highest)}${unit}`);
}

function charts(spanS) {
  const percent = (share) => share > 0 && share < 0.01 ? "<1" : whole(100 * share);
  line("rate", "Records per second", "/s", past.per_second, spanS, whole);
  line("latency", "p99 latency", " ms", past.p99_ms, spanS, short);
  line("buffer", "Buffer in use", " %", past.buffer, spanS, percent, 0.05);
}

function cell(label, content, className = "") {
  const node = make("td", { role: "cell", className }, content);
  node.dataset.label = label;
  return node;
}

function broker(each) {
  const state = make("span", { className: "state" }, each.state.replaceAll("_", " "));
  state.dataset.mood = MOODS[each.state] ?? "bad";
  const latency = `${short(each.latency_avg_ms)} / ${short(each.latency_max_ms)} ms`;
  return make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, `${each.id} `, make("small", {}, each.address)),
    cell("State", state),
    cell("In flight", whole(each.in_flight), "number"),
    cell("Latency avg / max", latency, "number"),
    cell("Sent", `${size(each.bytes_per_second)}/s`, "number"));
}

function topic(each) {
  const total = (label, value) => cell(label, whole(value), value ? "number bad" : "number");
  const records = each.per_second === null ? "–" : `${short(each.per_second)}/s`;
  const bytes = each.bytes_per_second === null ? "–" : `${size(each.bytes_per_second)}/s`;
  return make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, each.name),
    cell("Records sent", records, "number"),
    cell("Bytes sent", bytes, "number"),
    cell("Queued", whole(each.queued), "number"),
    cell("In flight", whole(each.in_flight), "number"),
    cell("Oldest", each.oldest_s ? age(each.oldest_s) : "–", "number"),
    cell("Retried", whole(each.retried), "number"),
    total("Failed", each.failed));
}

function topics(now) {
  element("topics").replaceChildren(...now.topics.map(topic));
  element("no-topics").hidden = now.topics.length > 0;
  element("topics-table").hidden = !now.topics.length;
  element("topics-left-out").hidden = !now.topics_left_out;
  put("topics-left-out", `and ${whole(now.topics_left_out)} more topics with less traffic`);
}

function failure(each) {
  const records = each.records === 1 ? "1 record" : `${whole(each.records)} records`;
  const where = each.where ? ` of ${each.where}` : "";
  return make("li", {},
    make("strong", {}, records + where),
    make("span", {}, ` ${age(each.age_s)} ago`),
    make("div", {}, each.error));
}

function show(now) {
  const { records, latency_ms: latency, buffer } = now;
  put("client", now.client_id);
  put("process", String(now.process));
  put("uptime", age(now.uptime_s));
  put("rate", records.per_second === null ? "–" : whole(records.per_second));
  for (const name of ["acknowledged", "retried", "failed", "refused"]) put(name, whole(records[name]));
  for (const name of ["p50", "p95", "p99", "max"]) put(name, short(latency[name]));
  charts(now.history.span_s);
  const share = buffer.total ? buffer.used / buffer.total : 0;
  element("buffer").value = share;
  put("buffer-share", share > 0 && share < 0.01 ? "<1" : whole(100 * share));
  put("buffer-used", size(buffer.used));
  put("buffer-total", size(buffer.total));
  put("queued", whole(buffer.queued));
  put("in-flight", whole(buffer.in_flight));
  put("waiting", whole(buffer.waiting));
  put("oldest", buffer.oldest_s ? age(buffer.oldest_s) : "–");
  topics(now);
  element("brokers").replaceChildren(...now.brokers.map(broker));
  element("failures").replaceChildren(...now.failures.map(failure));
  element("no-failures").hidden = now.failures.length > 0;
  const name = now.state === "running" ? "Live" : `Producer ${now.state}`;
  status(name, MOODS[now.state] ?? "bad");
}

function connect() {
  const socket = new WebSocket(new URL("feed" + location.search, document.baseURI).href.replace(/^http/, "ws"));
  socket.onmessage = (event) => {
    wait = 500;
    const now = JSON.parse(event.data);
    keep(now.history);
    if (!paused) show(now);
  };
  socket.onopen = forget;
  socket.onclose = () => {
    if (!paused) status("Connection lost, trying again", "bad");
    setTimeout(connect, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT_MS);
  };
}

element("pause").addEventListener("click", () => {
  paused = !paused;
  element("pause").setAttribute("aria-pressed", String(paused));
  if (paused) status("Paused", "wait");
});
connect();
