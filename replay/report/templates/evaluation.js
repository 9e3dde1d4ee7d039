"use strict";
// What if: prices the starts of the replays at any return time and price; the page has its table without it.
(() => {
  const found = JSON.parse(document.getElementById("what-if-data").textContent);
  const form = document.querySelector(".controls"), table = document.getElementById("what-if-table");

  const grouped = (value, digits) => value.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const digits = (value) => Math.abs(value) >= 999.5 ? grouped(value, 0) : String(Number(value.toPrecision(3)));
  const forms = {number: digits, share: (value) => `${digits(100 * value)}%`, money: (value) => grouped(value, 0)};

  // As _priced in bft/replay/report/evaluation.py.
  function priced(curve, seconds, hostPrice, kwhPrice) {
    let delayed = 0, nodes = 0, ago = 0, nodesAgo = 0;
    for (const [second, starts, ...sums] of curve.ago) {
      if (second >= seconds) continue;
      delayed += starts; nodes += sums[0]; ago += sums[1]; nodesAgo += sums[2];
    }
    const {a_year: year, prices} = found, used = curve.training_node_h, waiting = (seconds * nodes - nodesAgo) / 3600;
    const net = used - hostPrice * waiting, watts = prices.node_watts, price = prices.price_per_node_hour;
    const kwh = watts ? (watts[1] - watts[0]) / 1000 * used * year : null;
    return {
      reserve: curve.reserve, return_time_s: seconds, starts: curve.starts, delayed,
      delayed_share: curve.starts ? delayed / curve.starts : null,
      mean_delay_s: curve.starts ? (seconds * delayed - ago) / curve.starts : null,
      longest_delay_s: Math.max(0, seconds - curve.least_s),
      waiting_share_of_host: curve.host_node_h ? waiting / curve.host_node_h : null,
      break_even_price: waiting ? (used - (kwh && price ? kwh * kwhPrice / (price * year) : 0)) / waiting : null,
      training_node_h_a_year: used * year, waiting_node_h_a_year: waiting * year, net_node_h_a_year: net * year,
      energy_cost: kwh === null ? null : kwh * kwhPrice,
      net_value_a_year: price === null ? null : price * net * year - (kwh === null ? 0 : kwh * kwhPrice),
    };
  }

  function show() {
    const value = (name) => form.elements[name] === undefined ? 0 : Number(new FormData(form).getAll(name).at(-1));
    const seconds = Math.min(900, Math.max(1, Math.round(value("return_time_s")))), reserve = value("reserve");
    const rows = found.curves.map((curve) => priced(curve, seconds, value("host_price"), value("price_per_kwh")));
    table.tBodies[0].replaceChildren(...rows.map((row) => {
      const made = document.createElement("tr");
      if (row.reserve === reserve) made.className = "chosen";
      found.columns.forEach(([key, form], k) => {
        const cell = made.appendChild(document.createElement(k ? "td" : "th"));
        if (!k) cell.scope = "row";
        cell.className = "number";
        cell.textContent = row[key] === null ? "-" : forms[form](row[key]);
      });
      return made;
    }));
    const row = rows.find((each) => each.reserve === reserve);
    const money = found.prices.price_per_node_hour !== null, net = (each) => money ? each.net_value_a_year : each.net_node_h_a_year;
    const best = rows.reduce((one, other) => net(other) > net(one) ? other : one);
    const least = found.lower_bound ? "at least " : "";
    const parts = [
      `If a node takes ${seconds} s to come back and ${reserve} ${reserve === 1 ? "node is" : "nodes are"} kept free, training gets ${digits(row.training_node_h_a_year)} node-hours in a year.`,
      `${found.by_job ? `Of ${grouped(row.starts, 0)} starts of your own jobs ${least}${grouped(row.delayed, 0)} wait` : `Own jobs wait at ${grouped(row.delayed, 0)} of ${grouped(row.starts, 0)} instants at which nodes are taken back`}, ${grouped(row.mean_delay_s ?? 0, 0)} s on average over all, ${grouped(row.longest_delay_s, 0)} s at most: ${least}${digits(row.waiting_node_h_a_year)} node-hours in a year.`,
      `Net: ${digits(row.net_node_h_a_year)} node-hours in a year${money ? `, ${grouped(row.net_value_a_year, 0)} in money` : ""}${row.energy_cost ? `, where the energy costs ${grouped(row.energy_cost, 0)}` : ""}.`,
      net(best) <= 0 ? "It does not pay." : best.reserve === reserve ? "None of the other numbers kept free leaves more." : `With ${best.reserve} kept free more is left.`,
    ];
    document.getElementById("what-if-answer").textContent = parts.join(" ");
  }

  // A slider and its field are one value; the field is the last of its name and may lie beyond the slider's end.
  form.addEventListener("input", (event) => {
    for (const other of form.querySelectorAll(`[name="${event.target.name}"]`))
      if (other.type !== "radio" && other !== event.target) other.value = event.target.value;
    if (event.target.checkValidity()) show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = table.hidden = false;
  show();
})();
