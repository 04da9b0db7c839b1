(function () {
  "use strict";
  var source = document.getElementById("cells"), tip = document.getElementById("tip");
  if (!source) return;
  var cells = JSON.parse(source.textContent);
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function when(ms) {
    var d = new Date(ms);
    var day = d.getUTCFullYear() + "-" + two(d.getUTCMonth() + 1) + "-" + two(d.getUTCDate());
    var clock = two(d.getUTCHours()) + ":" + two(d.getUTCMinutes());
    return day + " " + clock + (cells.row < 60000 ? ":" + two(d.getUTCSeconds()) : "") + "Z";
  }
  function show(event) {
    var box = event.target.getBoundingClientRect();
    var scale = event.target.getBBox().width / box.width;
    var column = Math.floor((event.clientX - box.left) * scale / cells.w);
    var row = Math.floor((event.clientY - box.top) * scale / cells.h);
    var index = column * cells.rows + row;
    tip.textContent = "";
    var head = document.createElement("b");
    head.textContent = when(cells.begin + column * cells.column + row * cells.row);
    tip.appendChild(head);
    var any = false;
    cells.layers.forEach(function (layer) {
      var value = layer.values[index];
      if (value === null || value === undefined) return;
      any = true;
      var line = document.createElement("div");
      line.textContent = layer.label + ": " + value + " " + layer.unit;
      tip.appendChild(line);
    });
    if (!any) { tip.hidden = true; return; }
    tip.hidden = false;
    var left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    var top = event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = top + "px";
  }
  document.querySelectorAll(".map .over").forEach(function (target) {
    target.addEventListener("pointermove", show);
    target.addEventListener("pointerdown", show);
    target.addEventListener("pointerleave", function () { tip.hidden = true; });
  });
})();
