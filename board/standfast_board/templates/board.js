(function () {
  "use strict";
  // A click on the head of a column sorts the table; rows that are apart stay at the end, and empty cells before them.
  function key(row, at) {
    var cell = row.cells[at];
    var raw = cell.getAttribute("data-sort");
    if (raw === null) return cell.textContent.trim().toLowerCase();
    if (raw === "") return null;
    return isNaN(Number(raw)) ? raw.toLowerCase() : Number(raw);
  }

  function compare(a, b, up) {
    if (a.apart !== b.apart) return a.apart ? 1 : -1;
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
    var less = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
    return (up ? less : -less) || a.place - b.place;
  }

  function sort(table, head, at) {
    var up = head.getAttribute("aria-sort") !== "ascending";
    Array.from(table.tHead.rows[0].cells).forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    Array.from(table.tBodies[0].rows)
      .map(function (row, place) { return { row: row, key: key(row, at), place: place, apart: row.hasAttribute("data-apart") }; })
      .sort(function (a, b) { return compare(a, b, up); })
      .forEach(function (entry) { table.tBodies[0].appendChild(entry.row); });
  }

  document.querySelectorAll("table.sortable").forEach(function (table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (head, at) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      Array.from(head.childNodes).forEach(function (node) { if (node.nodeName !== "SMALL") button.appendChild(node); });
      head.insertBefore(button, head.firstChild);
      button.addEventListener("click", function () { sort(table, head, at); });
    });
  });
})();
