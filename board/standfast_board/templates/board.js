(function () {
  "use strict";
  // ---- tables are sorted by a click on the head of a column; rows that are apart stay at the end
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var body = table.tBodies[0], heads = Array.prototype.slice.call(table.tHead.rows[0].cells);
    function key(row, at) {
      var cell = row.cells[at], raw = cell.getAttribute("data-sort");
      if (raw === null) return cell.textContent.trim().toLowerCase();
      return raw === "" ? null : isNaN(Number(raw)) ? raw.toLowerCase() : Number(raw);
    }
    heads.forEach(function (head, at) {
      var button = document.createElement("button");
      button.type = "button"; button.className = "sort";
      Array.prototype.slice.call(head.childNodes).forEach(function (node) { if (node.nodeName !== "SMALL") button.appendChild(node); });
      head.insertBefore(button, head.firstChild);
      button.addEventListener("click", function () {
        var up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        var rows = Array.prototype.slice.call(body.rows);
        rows.map(function (row, place) { return { row: row, key: key(row, at), place: place, apart: row.hasAttribute("data-apart") }; })
          .sort(function (a, b) {
            if (a.apart !== b.apart) return a.apart ? 1 : -1;
            if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
            var less = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
            return (up ? less : -less) || a.place - b.place;
          })
          .forEach(function (entry) { body.appendChild(entry.row); });
      });
    });
  });
  function unfold() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  function wide() {
    document.querySelectorAll(".scroll").forEach(function (place) {
      place.classList.toggle("more", place.scrollWidth > place.clientWidth + 4 && place.scrollLeft < 4);
    });
  }
  window.addEventListener("resize", wide); wide();
  document.querySelectorAll("details").forEach(function (each) { each.addEventListener("toggle", wide); });
})();
