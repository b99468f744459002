// The page: asks this server for a text, and shows each piece as it comes, marked by its origin.
// What a model writes is only ever put in as text, never as HTML.
"use strict";
const at = id => document.getElementById(id);
let asking = null; // aborts the request that is under way

const wanted = () => {
  const body = { prompt: at("prompt").value, stream: true };
  for (const id of ["temperature", "max_tokens"]) body[id] = at(id).valueAsNumber; // an empty one becomes null
  body.stream_options = { include_usage: true, continuous_usage_stats: true };
  // A seed has up to 64 bits, more than a number of JavaScript holds: its digits go in as they are.
  const seed = at("seed").value.trim();
  const json = JSON.stringify(body);
  return /^-?\d+$/.test(seed) ? `${json.slice(0, -1)},"seed":${BigInt(seed)}}` : json;
};

// Control characters, and those that reorder what follows them, are written out: nobody would see them.
const visible = text =>
  text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g,
    c => `U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`);

const add = (text, origin) => {
  const span = document.createElement("span");
  span.className = origin;
  span.title = document.querySelector(`#legend .${origin}`)?.title ?? origin;
  span.textContent = visible(text);
  at("text").append(span);
};

const say = (words, wrong = false) => {
  at("numbers").textContent = words;
  at("numbers").classList.toggle("error", wrong);
};

const count = usage => {
  const { accepted_prediction_tokens: a, rejected_prediction_tokens: r } = usage.completion_tokens_details;
  let rate = "no draft verified";
  if (r === null) rate = `${a} accepted, no acceptance rate where a draft is verified as a whole`;
  else if (a + r) rate = `acceptance rate ${(a / (a + r)).toFixed(2)} (${a} accepted, ${r} rejected)`;
  return `${usage.completion_tokens} tokens, ${rate}`;
};

// The data of each server-sent event of a response, as it comes.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) yield block.replace(/^data: /, "");
  }
}

const write = async () => {
  asking = new AbortController();
  at("write").disabled = true;
  at("stop").disabled = false;
  at("text").replaceChildren();
  add(at("prompt").value, "prompt");
  say("Waiting for the first token.");
  let numbers = "", ended = false;
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch("v1/completions", { method: "POST", headers, body: wanted(), signal: asking.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const data of events(response)) {
      ended = data === "[DONE]";
      if (ended) break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices) for (const [text, origin] of choice.spec) add(text, origin);
      numbers = count(chunk.usage);
      say(numbers);
    }
    if (!ended) throw new Error("the connection broke off");
    say(`${numbers}. Done.`);
  } catch (error) {
    const stopped = error.name === "AbortError";
    say(stopped ? `${numbers}. Stopped.` : `${numbers} ${error.message}`.trim(), !stopped);
  } finally {
    at("write").disabled = false;
    at("stop").disabled = true;
  }
};

at("form").addEventListener("submit", event => {
  event.preventDefault();
  write();
});
at("stop").addEventListener("click", () => asking.abort());
