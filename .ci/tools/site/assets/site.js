// Labels each cell with its column, so that site.css can show rows one below the other on a phone.
// The roles keep it a table for screen readers, whatever the style makes of it.
for (const table of document.querySelectorAll(".md-typeset table")) {
  const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  if (names.length < 3) continue;
  table.dataset.stacked = "";
  table.setAttribute("role", "table");
  for (const part of table.querySelectorAll("thead, tbody")) part.setAttribute("role", "rowgroup");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, index) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "columnheader" : "cell");
      if (names[index]) cell.dataset.label = names[index];
    });
  }
}
