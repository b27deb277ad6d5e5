// Calls of the server's API, with the key that its reader typed in, where it wants one.

import { $, el, say } from "./dom.js";

const KEY = "strata.key";
let asking = null;

/** What is kept in the browser under a name; null where nothing may be. */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text; whether that went. */
export function keep(name, text) {
  try {
    localStorage.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

/** An answer that was none. The message is a sentence for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function withKey(options) {
  const headers = new Headers(options.headers);
  const key = kept(KEY);
  if (key) headers.set("authorization", `Bearer ${key}`);
  return { cache: "no-store", ...options, headers };
}

/** Ask for the key, once for all who want it. */
function askForKey(wrong) {
  asking ??= new Promise((resolve) => {
    const dialog = $("key-dialog");
    const field = $("key");
    say($("key-error"), wrong ? "The server refused that key." : "");
    field.setAttribute("aria-invalid", wrong);
    const submit = (event) => {
      event.preventDefault();
      keep(KEY, field.value.trim());
      field.value = "";
      dialog.close();
    };
    $("key-form").addEventListener("submit", submit, { once: true });
    dialog.addEventListener(
      "close",
      () => {
        $("key-form").removeEventListener("submit", submit);
        asking = null;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

/** What went wrong, in the server's own words where it has some. */
async function sentence(response) {
  try {
    const { error, message } = await response.json();
    return error?.message ?? message ?? String(error);
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  }
}

/** fetch() of a path, until the key is right. Raises Refused, or fetch's own TypeError. */
export async function call(path, options = {}) {
  for (;;) {
    const used = kept(KEY);
    const response = await fetch(path, withKey(options));
    if (response.ok) return response;
    if (response.status !== 401) throw new Refused(response.status, await sentence(response));
    // Another call may have asked meanwhile: then its answer is tried first.
    if (kept(KEY) === used) await askForKey(Boolean(used));
    options.signal?.throwIfAborted();
    if (kept(KEY) === used && !asking) throw new Refused(401, "This server needs an API key.");
  }
}

/** The JSON at a path. */
export async function read(path, options) {
  return (await call(path, options)).json();
}

/** An error as a sentence. */
export function words(error) {
  if (error instanceof Refused) return error.message;
  if (error instanceof TypeError) return "The server cannot be reached.";
  return String(error.message ?? error);
}

/** A paragraph that says what went wrong. */
export const trouble = (error) => el("p", { class: "trouble", role: "alert" }, words(error));
