(function () {
  "use strict";
  // ---- copy buttons
  document.querySelectorAll(".copyable").forEach(function (place) {
    var button = document.createElement("button"), text = place.querySelector("pre").textContent;
    button.type = "button"; button.textContent = "Copy";
    button.addEventListener("click", function () {
      function said(word) { button.textContent = word; setTimeout(function () { button.textContent = "Copy"; }, 1500); }
      function select() {
        var range = document.createRange(); range.selectNodeContents(place.querySelector("pre"));
        var chosen = window.getSelection(); chosen.removeAllRanges(); chosen.addRange(range);
        said(document.execCommand("copy") ? "Copied" : "Selected");
      }
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(function () { said("Copied"); }, select); else select();
    });
    place.appendChild(button);
  });
  // ---- pictures that are linked to lie in folded parts
  function unfold() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  document.addEventListener("click", function (event) {  // a link to where the reader was before unfolds it again
    var link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) unfold();
  });
  // ---- on paper: metrics, tables and methods; what else is open stays open
  var opened = [];
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details.metric, details.pair, details.printed").forEach(function (d) { if (!d.open) { d.open = true; opened.push(d); } });
  });
  addEventListener("afterprint", function () { opened.forEach(function (d) { d.open = false; }); opened = []; });

  // ---- the table
  var source = document.getElementById("rows");
  if (!source) return;
  var stored = JSON.parse(source.textContent), names = stored.names, PAGE = 100;
  function of(column, i) { return Array.isArray(column) ? column[i] : column; }
  function finite(x) { return x === "-inf" ? -Infinity : x === "inf" ? Infinity : x === null || x === undefined ? NaN : x; }
  function show(x, decimals) {
    x = finite(x);
    if (isNaN(x)) return "–";
    if (decimals === "probability") return probability(x);
    if (!isFinite(x)) return x > 0 ? "∞" : "−∞";
    var text = decimals === null || decimals === undefined ? String(+x.toPrecision(4)) : x.toFixed(decimals);
    if (/^-0\.?0*$/.test(text)) text = text.slice(1);
    return text.replace("-", "−");
  }
  function probability(x) {  // a probability, given as its logarithm, as in the rest of the page
    var power = -x / Math.LN10, step = Math.pow(10, Math.floor(power) - 1);
    if (power <= 0) return "100%";
    if (x > Math.log(0.995)) return "over 99.5%";
    if (power < 3 - 1e-9) return +(100 * Math.exp(x)).toPrecision(2) + "%";
    if (power >= 9) return isFinite(power) ? "1 in 10^" + Math.round(power) : "0%";
    return "1 in " + grouped(Math.round(Math.pow(10, power) / step) * step);
  }
  var rows = [];
  stored.blocks.forEach(function (block) { for (var i = 0; i < block.rows; i++) rows.push({ b: block, i: i }); });
  function cell(row, key) { return of(row.b.columns[key], row.i); }
  function value(row) { return finite(of(row.b.value, row.i)); }
  function remarks(row) {
    var said = [], flags = row.b.flags;
    Object.keys(flags).forEach(function (name) {
      var must = row.b.only.indexOf(name) >= 0, is = of(flags[name], row.i);
      if (must ? ok(row) && !is : is) said.push((must ? "not " : "") + name);
    });
    if (cell(row, "degenerate") > 0) said.push(cell(row, "degenerate") + " constant");
    if (cell(row, "nonfinite") > 0) said.push(cell(row, "nonfinite") + " NaN");
    return said.join(", ");
  }
  function ok(row) { return names.status[cell(row, "status")] === "ok"; }
  function name(key) { return function (row) { return names[key][cell(row, key)]; }; }
  function written(row) { return names.texts[cell(row, "data")][cell(row, "sample")] || ""; }
  function label(row) { return names.label[row.b.label]; }
  function shownValue(row) {
    if (!ok(row)) return "–";
    var bound = row.b.censored && row.b.flags[row.b.censored] !== undefined && of(row.b.flags[row.b.censored], row.i);
    var x = of(row.b.value, row.i);
    return (bound ? row.b.bound + " " : "") + show(x, row.b.decimals);
  }
  function interval(row) {
    if (!row.b.interval || !ok(row)) return "";
    var ends = row.b.interval.map(function (column) { return of(column, row.i); });
    return ends[0] === null && ends[1] === null ? "" : "[" + ends.map(function (x) { return show(x, row.b.decimals); }).join(", ") + "]";
  }
  function many(key) { return names[key].length > 1; }
  function wide(column) { return column[0] === "Explainer" || column[0] === "Metric" || column[0] === "Class"; }
  var repeated = stored.blocks.some(function (block) { return Array.isArray(block.columns.repeat); });
  var pictured = stored.blocks.some(function (block) { return Array.isArray(block.links) || block.links; });
  function number(key) { return function (row) { return cell(row, key); }; }
  // title, text, key to sort by (null: by the text), numeric
  var columns = [
    many("data") && ["Data", name("data")],
    many("model") && ["Model", name("model")],
    ["Explainer", name("explainer")],
    ["Metric", label],
    repeated && ["Repeat", number("repeat"), number("repeat"), true],
    ["Sample", number("sample"), number("sample"), true],
    ["Status", name("status")],
    [stored.answer, function (row) {
      var known = names.classes[cell(row, "data")];
      var read = cell(row, "answer"), number = read !== null && read !== undefined;
      if (number) return show(read, null) + (isFinite(cell(row, "predicted") || NaN) ? " → " + show(cell(row, "predicted"), null) : "");
      var found = [cell(row, "targets"), cell(row, "predicted")].map(function (x) { return x in known ? known[x] : x; });
      return (found[0] === null ? "–" : found[0]) + (found[1] === null || found[1] === undefined ? "" : " → " + found[1]);
    }],
    ["Value", shownValue, function (row) { return ok(row) ? value(row) : NaN; }, true],
    stored.blocks.some(function (block) { return block.interval; }) && ["95% interval", interval, function (row) { return row.b.interval ? finite(of(row.b.interval[0], row.i)) : NaN; }, true],
    ["Remarks", remarks],
    ["Evaluations", function (row) { return show(cell(row, "model_evaluations"), 0); }, number("model_evaluations"), true],
    pictured && ["Pictures", function (row) { return of(row.b.links, row.i) ? "pictures" : ""; }]
  ].filter(Boolean);

  // ---- filters
  var form = document.getElementById("filters"), inputs = {};
  function add(title, node) {
    var holder = document.createElement("label"); holder.append(title, node); form.appendChild(holder); return node;
  }
  function choice(key, title, options) {
    if (options.length < 2) return;
    var select = document.createElement("select"); select.name = key;
    select.add(new Option("all", ""));
    options.forEach(function (option, i) { select.add(new Option(option, String(i))); });
    inputs[key] = add(title, select);
  }
  choice("data", "Data", names.data); choice("model", "Model", names.model);
  choice("explainer", "Explainer", names.explainer); choice("label", "Metric", names.label);
  choice("status", "Status", names.status);
  ["least", "most"].forEach(function (key) {
    var input = document.createElement("input"); input.type = "number"; input.step = "any"; input.name = key;
    inputs[key] = add(key === "least" ? "Value from" : "to", input);
  });
  var text = document.createElement("input"); text.type = "search"; text.name = "text"; text.placeholder = "censored, 4 → 9, …";
  inputs.text = add("Text", text);
  function button(title, act) {
    var made = document.createElement("button"); made.type = "button"; made.textContent = title; made.addEventListener("click", act); return made;
  }
  form.append(button("Reset", function () { form.reset(); apply(); }), button("Save as CSV", save));
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  var timer = 0;
  form.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(apply, 120); });

  var chosen = rows, page = 0, sorted = null, down = false;
  function wanted() {
    var tests = [];
    ["data", "model", "explainer", "status"].forEach(function (key) {
      if (inputs[key] && inputs[key].value !== "") { var w = +inputs[key].value; tests.push(function (row) { return cell(row, key) === w; }); }
    });
    if (inputs.label && inputs.label.value !== "") { var l = +inputs.label.value; tests.push(function (row) { return row.b.label === l; }); }
    var least = parseFloat(inputs.least.value), most = parseFloat(inputs.most.value);
    function read(row) { return row.b.decimals === "probability" ? Math.exp(value(row)) : value(row); }
    if (!isNaN(least)) tests.push(function (row) { return ok(row) && read(row) >= least; });
    if (!isNaN(most)) tests.push(function (row) { return ok(row) && read(row) <= most; });
    var words = inputs.text.value.trim().toLowerCase();
    if (words) tests.push(function (row) {
      var said = columns.map(function (column) { return column[1](row); }).concat(written(row), of(row.b.swaps, row.i));
      return said.some(function (each) { return String(each).toLowerCase().indexOf(words) >= 0; });
    });
    return tests;
  }
  function apply() {
    var tests = wanted();
    chosen = rows.filter(function (row) { return tests.every(function (test) { return test(row); }); });
    order(); page = 0; render();
  }
  function order() {
    if (sorted === null) return;
    var column = columns[sorted], key = column[2] || column[1], sign = down ? -1 : 1;
    var keyed = chosen.map(function (row, i) { return [key(row), i, row]; });
    keyed.sort(function (a, b) {
      var x = a[0], y = b[0];
      if (column[3]) {  // what has no number comes last, whichever way
        var nx = x === null || x !== x, ny = y === null || y !== y;
        if (nx || ny) return nx - ny || a[1] - b[1];
      }
      return (x < y ? -1 : x > y ? 1 : 0) * sign || a[1] - b[1];
    });
    chosen = keyed.map(function (entry) { return entry[2]; });
  }

  // ---- drawing
  var table = document.getElementById("samples"), body = table.tBodies[0], count = document.getElementById("count");
  var head = table.tHead.insertRow();
  columns.forEach(function (column, i) {
    var th = document.createElement("th"), sort = document.createElement("button");
    th.scope = "col"; sort.type = "button"; sort.className = "sort"; sort.textContent = column[0];
    sort.addEventListener("click", function () {
      down = sorted === i && !down; sorted = i;
      Array.prototype.forEach.call(head.cells, function (other) { other.removeAttribute("aria-sort"); });
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      apply();
    });
    th.appendChild(sort); head.appendChild(th);
  });
  function grouped(n) { return n.toLocaleString("en"); }
  function render() {
    var from = page * PAGE, shown = chosen.slice(from, from + PAGE), part = document.createDocumentFragment();
    shown.forEach(function (row) {
      var tr = document.createElement("tr"); tr.className = "row";
      columns.forEach(function (column) {
        var td = tr.insertCell(), text = column[1](row);
        if (column[3]) td.className = "n"; else if (wide(column)) td.className = "w";
        if (column[0] === "Pictures" && text) {
          var link = document.createElement("a"); link.href = "#" + of(row.b.links, row.i); link.textContent = text;
          link.addEventListener("click", function (event) { event.stopPropagation(); if (link.hash === location.hash) unfold(); });
          td.appendChild(link);
        } else td.textContent = text;
      });
      tr.addEventListener("click", function () { more(tr, row); });
      part.appendChild(tr);
    });
    body.replaceChildren(part);
    var all = grouped(rows.length), of_all = chosen.length === rows.length ? all + " rows" : grouped(chosen.length) + " of " + all + " rows";
    count.textContent = chosen.length ? "Rows " + grouped(from + 1) + " to " + grouped(from + shown.length) + " of " + of_all : "No row of " + all + " fits";
    back.disabled = page === 0; on.disabled = from + PAGE >= chosen.length;
    place.textContent = "Page " + grouped(page + 1) + " of " + grouped(Math.max(1, Math.ceil(chosen.length / PAGE)));
  }
  function more(tr, row) {
    if (tr.nextSibling && tr.nextSibling.className === "more") { tr.nextSibling.remove(); return; }
    var made = document.createElement("tr"), td = made.insertCell(), list = document.createElement("dl");
    made.className = "more"; td.colSpan = columns.length;
    function tell(title, text) {
      var pair = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = title; dd.textContent = text; dd.dir = "auto"; pair.append(dt, dd); if (text) list.appendChild(pair);
    }
    tell("text", written(row)); tell("changed words", of(row.b.swaps, row.i));
    Object.keys(row.b.extras).forEach(function (key) { tell(key, show(of(row.b.extras[key], row.i))); });
    if (!list.childNodes.length) list.textContent = "Nothing more is stored.";
    td.appendChild(list); tr.after(made);
  }
  function save() {
    var extras = [];
    stored.blocks.forEach(function (block) { Object.keys(block.extras).concat(Object.keys(block.flags)).forEach(function (key) { if (extras.indexOf(key) < 0) extras.push(key); }); });
    function quote(x) { x = x === null || x === undefined ? "" : String(x); return /[",\n\r]/.test(x) ? '"' + x.replace(/"/g, '""') + '"' : x; }
    var head = ["data", "model", "explainer", "label", "repeat", "sample", "status", "target", "predicted", "value", "low", "high", "model_evaluations"].concat(extras);
    var lines = [head.join(",")];
    chosen.forEach(function (row) {
      var ends = row.b.interval || [null, null];
      var fields = [name("data")(row), name("model")(row), name("explainer")(row), label(row), cell(row, "repeat"), cell(row, "sample"), name("status")(row),
        cell(row, "targets"), cell(row, "predicted"), of(row.b.value, row.i), of(ends[0], row.i), of(ends[1], row.i), cell(row, "model_evaluations")];
      extras.forEach(function (key) { fields.push(key in row.b.extras ? of(row.b.extras[key], row.i) : key in row.b.flags ? of(row.b.flags[key], row.i) : ""); });
      lines.push(fields.map(quote).join(","));
    });
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = "standfast-samples.csv"; link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
  }
  var pager = document.getElementById("pager"), place = document.createElement("span");
  function turn(step) { return function () { page += step; render(); table.parentElement.scrollTop = 0; }; }
  var back = button("Back", turn(-1)), on = button("Next", turn(1));
  pager.append(back, place, on);
  render();
})();
(function () {  // a line above each table that is wider than the page
  var seen = new ResizeObserver(function (entries) {
    entries.forEach(function (entry) {
      var box = entry.target.closest(".scroll");
      box.classList.toggle("more", box.scrollWidth > box.clientWidth + 2);
    });
  });
  document.querySelectorAll(".scroll, .scroll > table").forEach(function (each) { seen.observe(each); });
})();
