(function () {
  "use strict";
  var table = document.getElementById("samples");
  if (!table) return;
  var body = table.tBodies[0], rows = Array.prototype.slice.call(body.rows), chosen = {};
  function key(row, column) {
    var cell = row.cells[column], text = cell.dataset.key === undefined ? cell.textContent.trim() : cell.dataset.key;
    var value = parseFloat(text.replace(/[−]/g, "-").replace(/[≤,\s]/g, ""));
    return "numeric" in cell.dataset ? (isNaN(value) ? -Infinity : value) : text;
  }
  Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
    var button = document.createElement("button");
    button.type = "button"; button.className = "sort"; button.textContent = head.textContent.trim();
    head.textContent = ""; head.appendChild(button);
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending";
      Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort(function (a, b) {
        var x = key(a, column), y = key(b, column);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
  });
  var filters = document.getElementById("filters");
  [["Explainer", 0], ["Metric", 1]].forEach(function (entry) {
    var names = rows.map(function (row) { return row.cells[entry[1]].textContent.trim(); });
    names = names.filter(function (name, place) { return names.indexOf(name) === place; });
    var label = document.createElement("label"), select = document.createElement("select");
    label.textContent = entry[0] + ": ";
    ["all"].concat(names).forEach(function (name, place) {
      var option = document.createElement("option");
      option.textContent = name; option.value = place ? name : ""; select.appendChild(option);
    });
    select.addEventListener("change", function () {
      chosen[entry[1]] = select.value;
      rows.forEach(function (row) {
        row.hidden = Object.keys(chosen).some(function (c) { return chosen[c] && row.cells[c].textContent.trim() !== chosen[c]; });
      });
    });
    label.appendChild(select); filters.appendChild(label);
  });
})();
