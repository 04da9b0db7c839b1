// A page inside of Airflow follows Airflow's switch between light and dark.
(function () {
  "use strict";
  if (parent === window) return;
  try {
    var outer = parent.document.documentElement;
    var follow = function () {
      var scheme = ["dark", "light"].find(function (name) { return outer.classList.contains(name); });
      document.documentElement.style.colorScheme = scheme || "";
    };
    follow();
    new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ["class"] });
  } catch (error) {
    // A frame on another host: the page follows the browser's setting.
  }
})();
