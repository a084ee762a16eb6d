// ---------------------------------------------------------------------------------------------------- live
// The server answers a way with the states on it; a page holds one way at a time, so neither grows without end.
async function ask(choices, mine) {
  let problem = "";
  try {
    const answer = await fetch("way?" + choices.join("."));
    if (answer.ok) {
      const found = await answer.json();
      if (mine === turn) data.graph = graph = { ...graph, ...found };
    } else problem = await answer.text();
  } catch {
    problem = "kvproto explore does not answer, it may have ended; this begins here again: " + recorded(choices);
  }
  if (mine !== turn) return;   // another step was chosen meanwhile
  byId("differences").hidden = !problem;
  byId("differences").textContent = problem;
  if (!problem) {
    offer();
    settle(choices);
  } else if (!byId("explore").firstChild) settle(graph.way);
}
