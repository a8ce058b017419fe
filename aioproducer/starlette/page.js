// Shows what the feed says. Figures go into text nodes, never into markup.

const HISTORY = 60;
const MOODS = { ready: "good", running: "good", throttled: "wait", connecting: "wait",
  handshaking: "wait", disconnected: "wait" };
const LONGEST_WAIT_MS = 10000;

const element = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const rates = [];
const latencies = [];
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
  if (seconds < 120) return `${Math.round(seconds)} s`;
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

function line(id, name, unit, history, value) {
  if (value === null && !history.length) return;
  history.push(value ?? 0);
  if (history.length > HISTORY) history.shift();
  const highest = Math.max(...history);
  const step = 300 / (HISTORY - 1);
  const start = 300 - (history.length - 1) * step;
  const points = history.map((each, index) => {
    const y = 54 - 50 * (highest ? each / highest : 0);
    return `${(start + index * step).toFixed(1)} ${y.toFixed(1)}`;
  });
  const svg = element(id);
  const path = svg.firstElementChild ??
    svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  path.setAttribute("d", `M${points.join("L")}`);
  svg.setAttribute("aria-label", `${name} over the last minute: now ${short(value)} ${unit}, ` +
    `highest ${short(highest)} ${unit}`);
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
  line("rate-line", "Records per second", "records/s", rates, records.per_second);
  line("latency-line", "p99 latency", "ms", latencies, latency.p99);
  const share = buffer.total ? buffer.used / buffer.total : 0;
  element("buffer").value = share;
  put("buffer-share", share > 0 && share < 0.01 ? "<1" : whole(100 * share));
  put("buffer-used", size(buffer.used));
  put("buffer-total", size(buffer.total));
  put("queued", whole(buffer.queued));
  put("in-flight", whole(buffer.in_flight));
  put("waiting", whole(buffer.waiting));
  put("oldest", buffer.oldest_s ? age(buffer.oldest_s) : "–");
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
    if (!paused) show(JSON.parse(event.data));
  };
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
