// Shows the progress of running replays, and starts runs of Airflow's DAGs with the user's session.
(function () {
  "use strict";
  var EVERY_MS = 5000;

  function isTyping() {
    return [].some.call(document.querySelectorAll(".actions input"), function (field) { return field.value; });
  }

  function watch(part) {
    function show(now) {
      if (now.state === part.dataset.state) {
        part.querySelector("progress").value = now.mark;
        part.querySelector("span").textContent = now.words;
      } else if (!isTyping()) {
        location.reload();
      } else {
        part.querySelector("span").textContent = "The state is now: " + now.state + ". Reload the page.";
      }
    }
    function poll() {
      var asked = document.hidden ? Promise.resolve(null) : fetch(part.dataset.progress).then(function (answer) {
        return answer.ok ? answer.json() : null;
      });
      asked.then(function (now) { if (now) show(now); }, function () {}).then(function () { setTimeout(poll, EVERY_MS); });
    }
    setTimeout(poll, EVERY_MS);
  }

  function ask(address, options) {
    return fetch(address, options).then(function (answer) {
      return answer.json().catch(function () { return {}; }).then(function (content) {
        if (answer.ok) return content;
        var detail = typeof content.detail === "string" ? content.detail : JSON.stringify(content.detail || content);
        throw new Error("Airflow has rejected the request (" + answer.status + "): " + detail);
      });
    });
  }

  // A frame may not change the address of Airflow's page, but Airflow follows its history.
  function openInAirflow(event) {
    if (parent === window) return;
    event.preventDefault();
    parent.history.pushState({}, "", event.target.href);
    parent.dispatchEvent(new PopStateEvent("popstate"));
  }

  function offer(part) {
    var form = part.querySelector("form"), status = part.querySelector("[role=status]");
    var dag = part.dataset.airflow + "/api/v2/dags/" + part.dataset.dag;
    function start(action) {
      var conf = Object.assign({ act: action.value, reason: form.elements.reason.value.trim() }, JSON.parse(action.dataset.values));
      if (form.elements.accept) conf.accept = (action.value === "publish" && form.elements.accept.value.trim()) || null;
      return ask(dag).then(function (known) {
        if (known.is_paused) throw new Error("The DAG " + part.dataset.dag + " is paused. Unpause it in Airflow, then try again.");
        return ask(dag + "/dagRuns", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ logical_date: null, conf: conf }),
        });
      });
    }
    function showRun(run) {
      var link = document.createElement("a");
      link.href = part.dataset.airflow + "/dags/" + part.dataset.dag + "/runs/" + encodeURIComponent(run.dag_run_id);
      link.textContent = run.dag_run_id;
      link.addEventListener("click", openInAirflow);
      status.textContent = "Started: ";
      status.appendChild(link);
      form.reset();
    }
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var buttons = form.querySelectorAll("button");
      function enable(is_enabled) { buttons.forEach(function (button) { button.disabled = !is_enabled; }); }
      status.className = "";
      status.textContent = "Starting a run ...";
      var started = start(event.submitter);
      enable(false);
      started.then(showRun, function (error) {
        status.className = "bad";
        status.textContent = error.message;
      }).then(function () { enable(true); });
    });
    part.hidden = false;
  }

  document.querySelectorAll("[data-progress]").forEach(watch);
  document.querySelectorAll(".actions").forEach(offer);
  document.querySelectorAll(".in-airflow").forEach(function (link) { link.addEventListener("click", openInAirflow); });
})();
