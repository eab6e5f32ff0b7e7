#include "view_page.h"

namespace sherd::tools {

const char* const kViewPageHead = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sherd view</title>
<style>
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #68707a; --line: #d9dde2; --paper: #fff; --raised: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #98a1ab; --line: #3a4048; --paper: #16181b; --raised: #202327; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1200px; font: 14px/1.45 system-ui, sans-serif; color: var(--ink);
       background: var(--paper); }
h1 { font-size: 20px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 26px 0 8px; }
.soft { color: var(--soft); }
code, .mono { font: 12.5px/1.4 ui-monospace, SFMono-Regular, Menlo, monospace; }
.files { display: grid; grid-template-columns: minmax(120px, max-content) 1fr max-content; gap: 4px 12px;
         align-items: center; max-height: 340px; overflow: auto; }
.track { height: 14px; background: var(--raised); border-radius: 3px; overflow: hidden; }
.fill { height: 100%; border-radius: 3px; min-width: 1px; }
.missing { color: #c62828; font-weight: 600; }
.bar { display: flex; gap: 10px; margin: 8px 0; }
input, select { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line);
                border-radius: 6px; padding: 6px 10px; }
input { flex: 1; min-width: 0; }
#list { position: relative; border-top: 1px solid var(--line); }
.row { position: absolute; left: 0; right: 0; height: 72px; display: grid; align-items: center; gap: 14px; cursor: pointer;
       grid-template-columns: 132px minmax(0, 1fr) max-content max-content; border-bottom: 1px solid var(--line); }
.row:hover, .row.chosen { background: var(--raised); }
.row .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.row .right { text-align: right; min-width: 76px; }
svg { display: block; }
svg rect { stroke: var(--paper); stroke-width: 1; vector-effect: non-scaling-stroke; }
#chosen { position: sticky; top: 0; z-index: 1; background: var(--paper); border-bottom: 2px solid var(--line); padding: 12px 0;
          display: none; }
#chosen .two { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 20px; }
#chosen table { border-collapse: collapse; } #chosen td, #chosen th { padding: 2px 14px 2px 0; text-align: left; }
#objects table { display: block; max-height: 300px; overflow: auto; }
#chunks { max-height: 260px; overflow: auto; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
</style>
<body>
<h1 id="title"></h1>
<div class="soft" id="facts"></div>
<h2>Files</h2>
<div class="files" id="files"></div>
<div id="objects"></div>
<h2>Tensors</h2>
<div class="bar"><input id="search" placeholder="part of a name" aria-label="part of a name">
<select id="order" aria-label="order"><option value="name">by name</option><option value="bytes">largest first</option>
<option value="chunks">most chunks first</option></select></div>
<div class="soft" id="shown"></div>
<div id="chosen"></div>
<div id="list"></div>
<script type="application/json" id="data">)html";

const char* const kViewPageTail = R"html(</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const by = id => document.getElementById(id);
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(n) { let u = 0; while (n >= 1024 && u < 5) { n /= 1024; ++u; } return (u ? n.toFixed(1) : n) + " " + units[u]; }
const safe = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"};
function escape(text) { return text.replace(/[&<>"']/g, c => safe[c]); }
const count = n => n.toLocaleString("en");
// Neighbouring files get colours that are far apart.
const color = file => file < 0 ? "#c62828" : `hsl(${(file * 137.508 + 205) % 360} 55% ${48 + (file * 7) % 16}%)`;
const list = (a, open, close) => open + a.join(", ") + close;
const box = c => "[" + c[3].map((o, d) => `${o}:${o + c[4][d]}`).join(", ") + "]";

by("title").textContent = data.path;
document.title = "sherd view " + data.path;
const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
by("facts").textContent = `${data.format}, ${counted(data.tensors.length, "tensor")}, ` +
  `${counted(data.objects.length, "object")}, ${counted(data.files.length, "file")}, ${bytes(data.tensor_bytes)} of elements` +
  (data.bases.length ? `; stands on ${data.bases.map(b => b.path + (b.there ? "" : " (missing)")).join(", ")}` : "");

// layers.2 before layers.10.
data.tensors.sort((a, b) => a.name.localeCompare(b.name, "en", {numeric: true}));

const largest = data.files.reduce((most, f) => Math.max(most, f.bytes), 1);
by("files").innerHTML = data.files.map((f, i) =>
  `<span class="mono"><span class="swatch" style="background:${color(i)}"></span>${escape(f.name)}</span>` +
  `<div class="track"><div class="fill" style="width:${100 * f.bytes / largest}%;background:${color(i)}"></div></div>` +
  (f.there ? `<span class="mono">${bytes(f.bytes)}${f.rank === null ? "" : `, rank ${f.rank}`}, checked by ${f.checked_by}` +
     (f.bytes_in_bases ? `, ${bytes(f.bytes_in_bases)} in bases` : "") + "</span>"
   : `<span class="missing">missing</span>`)).join("");
if (data.objects.length) {
  by("objects").innerHTML = "<h2>Objects</h2><table class=mono>" + data.objects.slice(0, 500).map(o =>
    `<tr><td style="padding-right:20px">${escape(o.name)}</td><td>${escape(o.text)}</td></tr>`).join("") + "</table>" +
    (data.objects.length > 500 ? `<div class=soft>and ${count(data.objects.length - 500)} more</div>` : "");
}

// The two dims that the chunks cut most, drawn to scale as far as that can be seen.
function axes(t) {
  const n = t.size.length;
  if (n === 0) return [-1, -1];
  if (n === 1) return [-1, 0];
  const cuts = t.size.map((_, d) => new Set(t.chunks.map(c => c[3][d])).size);
  const order = [...cuts.keys()].sort((a, b) => cuts[b] - cuts[a] || t.size[b] - t.size[a]).slice(0, 2).sort((a, b) => a - b);
  return order;
}
function picture(t, w, h, labels) {
  const [row, col] = axes(t);
  const rows = row < 0 ? 1 : t.size[row], cols = col < 0 ? 1 : t.size[col];
  if (rows === 0 || cols === 0) return `<span class="soft">empty</span>`;
  const ratio = Math.min(4, Math.max(0.25, cols / rows)), width = ratio * h > w ? w : ratio * h;
  const height = Math.min(h, Math.max(width / ratio, 10));
  // Thousands of boxes are drawn as far as one is wider than a hair.
  const most = labels ? 4000 : 400, step = Math.ceil(t.chunks.length / most);
  let out = `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img"><title>${escape(t.name)}</title>`;
  for (let i = 0; i < t.chunks.length; i += step) {
    const c = t.chunks[i];
    const x = col < 0 ? 0 : c[3][col] / cols, bw = col < 0 ? 1 : c[4][col] / cols;
    const y = row < 0 ? 0 : c[3][row] / rows, bh = row < 0 ? 1 : c[4][row] / rows;
    if (bw === 0 || bh === 0) continue;
    out += `<rect x="${x * width}" y="${y * height}" width="${bw * width}" height="${bh * height}" fill="${color(c[0])}">` +
      `<title>${box(c)}\n${c[0] < 0 ? "stored nowhere" : escape(data.files[c[0]].name)}\n${bytes(c[2])}</title></rect>`;
  }
  return out + "</svg>" + (labels && t.size.length > 2 ? `<div class="soft">dims ${row} and ${col} of ${t.size.length}</div>` : "");
}

const height = 72;
let shown = [], chosen = null;
function choose(order, text) {
  text = text.toLowerCase();
  shown = data.tensors.filter(t => t.name.toLowerCase().includes(text));
  if (order === "bytes") shown.sort((a, b) => b.bytes - a.bytes);
  if (order === "chunks") shown.sort((a, b) => b.chunks.length - a.chunks.length);
  by("shown").textContent = `${count(shown.length)} of ${count(data.tensors.length)}, ` +
    bytes(shown.reduce((sum, t) => sum + t.bytes, 0));
  by("list").style.height = shown.length * height + "px";
  draw(true);
}
let first = -1, last = -1;
function draw(again) {
  const top = by("list").getBoundingClientRect().top;
  const from = Math.max(0, Math.floor(-top / height) - 4);
  const to = Math.min(shown.length, Math.ceil((innerHeight - top) / height) + 4);
  if (!again && from === first && to === last) return;
  [first, last] = [from, to];
  let out = "";
  for (let i = from; i < to; ++i) {
    const t = shown[i];
    out += `<div class="row${t === chosen ? " chosen" : ""}" style="top:${i * height}px" data-i="${i}">` +
      `<div>${picture(t, 128, 60, false)}</div><div class="name mono" title="${escape(t.name)}">${escape(t.name)}</div>` +
      `<div class="mono">${t.dtype}${list(t.size, "[", "]")}</div><div class="right mono">${bytes(t.bytes)}` +
      `<br><span class="soft">${counted(t.chunks.length, "chunk")}</span></div></div>`;
  }
  by("list").innerHTML = out;
}
function show(t) {
  chosen = chosen === t ? null : t;
  const panel = by("chosen");
  panel.style.display = chosen ? "block" : "none";
  if (chosen) {
    panel.innerHTML = `<div><b class="mono">${escape(t.name)}</b> <span class="mono soft">${t.dtype}${list(t.size, "[", "]")}, ` +
      `${bytes(t.bytes)}</span></div><div class="two"><div>${picture(t, 640, 260, true)}</div><div id="chunks"><table class="mono">` +
      `<tr><th>box</th><th>file</th><th>offset</th><th>bytes</th></tr>` + t.chunks.slice(0, 1000).map(c =>
        `<tr><td><span class="swatch" style="background:${color(c[0])}"></span>${box(c)}</td>` +
        `<td>${c[0] < 0 ? "none" : escape(data.files[c[0]].name)}</td><td>${c[1]}</td><td>${c[2]}</td></tr>`).join("") +
      `</table>${t.chunks.length > 1000 ? `and ${count(t.chunks.length - 1000)} more` : ""}</div></div>`;
  }
  draw(true);
}
by("list").addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (row) show(shown[+row.dataset.i]);
});
by("search").addEventListener("input", () => choose(by("order").value, by("search").value));
by("order").addEventListener("change", () => choose(by("order").value, by("search").value));
addEventListener("scroll", () => draw(false), {passive: true});
addEventListener("resize", () => draw(true));
choose("name", "");
</script>
</body>
</html>
)html";

}  // namespace sherd::tools
