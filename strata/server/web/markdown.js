// A little Markdown as elements: what models write most. No HTML is ever made from text, and
// links go to http, https and mail only. Blocks that did not change while a text grows stay.

import { copyButton, el } from "./dom.js";

const FENCE = /^(\s*)(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const HEAD = /^(#{1,6})\s+(.*?)\s*#*\s*$/;
const QUOTE = /^\s{0,3}>\s?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Whether a table begins at line `i`: a row with a bar, and a divider below it. */
const tableAt = (lines, i) => lines[i].includes("|") && DIVIDER.test(lines[i + 1] ?? "") && lines[i + 1].includes("-");

/** Cut a text into blocks: {kind, lines, ...}. */
function blocks(text) {
  const lines = text.split(/\r?\n/);
  const out = [];
  for (let i = 0; i < lines.length; ) {
    const start = i;
    const fence = FENCE.exec(lines[i]);
    if (fence) {
      const [, indent, mark, language] = fence;
      const end = lines.findIndex((l, j) => j > i && l.trim().startsWith(mark) && !l.trim().replaceAll(mark[0], ""));
      const stop = end < 0 ? lines.length : end;
      const body = lines.slice(i + 1, stop).map((l) => (l.startsWith(indent) ? l.slice(indent.length) : l));
      out.push({ kind: "code", lines: body, language });
      i = end < 0 ? lines.length : end + 1;
      continue;
    }
    if (!lines[i].trim()) {
      i += 1;
      continue;
    }
    if (HEAD.test(lines[i])) {
      out.push({ kind: "head", lines: [lines[i++]] });
    } else if (RULE.test(lines[i])) {
      out.push({ kind: "rule", lines: [lines[i++]] });
    } else if (tableAt(lines, i)) {
      while (i < lines.length && lines[i].includes("|")) i += 1;
      out.push({ kind: "table", lines: lines.slice(start, i) });
    } else if (QUOTE.test(lines[i])) {
      while (i < lines.length && QUOTE.test(lines[i])) i += 1;
      out.push({ kind: "quote", lines: lines.slice(start, i).map((l) => l.replace(QUOTE, "")) });
    } else if (ITEM.test(lines[i])) {
      const goesOn = (l, next) => ITEM.test(l) || /^\s+\S/.test(l) || (!l.trim() && (ITEM.test(next) || /^\s+\S/.test(next)));
      while (i < lines.length && goesOn(lines[i], lines[i + 1] ?? "")) i += 1;
      out.push({ kind: "list", lines: lines.slice(start, i) });
    } else {
      const breaks = (l, j) => !l.trim() || FENCE.test(l) || HEAD.test(l) || RULE.test(l) || QUOTE.test(l) || ITEM.test(l) || tableAt(lines, j);
      do i += 1;
      while (i < lines.length && !breaks(lines[i], i));
      out.push({ kind: "text", lines: lines.slice(start, i) });
    }
  }
  return out;
}

const INLINE = [
  [/^(`+)(.+?)\1(?!`)/s, (m) => el("code", {}, m[2].replace(/^ (.+) $/s, "$1"))],
  [/^\*\*(?=\S)(.+?)(?<=\S)\*\*/s, (m) => el("strong", {}, ...inline(m[1]))],
  [/^__(?=\S)(.+?)(?<=\S)__(?!\w)/s, (m) => el("strong", {}, ...inline(m[1]))],
  [/^~~(?=\S)(.+?)(?<=\S)~~/s, (m) => el("s", {}, ...inline(m[1]))],
  [/^\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?!\*)/s, (m) => el("em", {}, ...inline(m[1]))],
  [/^_(?=[^\s_])(.+?)(?<=[^\s_])_(?!\w)/s, (m) => el("em", {}, ...inline(m[1]))],
  [/^\[([^\]\n]+)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)/, (m) => link(m[2], inline(m[1]))],
  [/^<(https?:\/\/[^\s>]+)>/, (m) => link(m[1], [m[1]])],
  [/^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/, (m) => link(m[0], [m[0]])],
  [/^\\([!-/:-@[-`{-~])/, (m) => m[1]],
];

function link(target, children) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return el("span", {}, ...children);
  return el("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** Text with emphasis, code and links, as nodes. */
function inline(text) {
  const out = [];
  let plain = "";
  for (let i = 0; i < text.length; ) {
    const word = i > 0 && /\w/.test(text[i - 1]);
    let found = null;
    if (/[`*_~[<\\]|h/.test(text[i]) && !(word && /[_h]/.test(text[i]))) {
      const rest = text.slice(i);
      for (const [pattern, make] of INLINE) {
        const match = pattern.exec(rest);
        if (match) {
          found = [match[0].length, make(match)];
          break;
        }
      }
    }
    if (found) {
      if (plain) out.push(plain);
      plain = "";
      out.push(found[1]);
      i += found[0];
    } else {
      plain += text[i];
      i += 1;
    }
  }
  if (plain) out.push(plain);
  return out;
}

/** Lines of a paragraph; each stays one. */
const paragraph = (lines) => inline(lines.map((l) => l.trim().replace(/\\$/, "")).join("\n"));

function list(lines) {
  const [, , sign] = ITEM.exec(lines[0]);
  const base = ITEM.exec(lines[0])[1].length;
  const items = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= base + 1) items.push([match[3]]);
    else items.at(-1).push(line);
  }
  const ordered = /\d/.test(sign);
  const nodes = items.map((item) => {
    const depth = Math.min(...item.slice(1).filter((l) => l.trim()).map((l) => /^\s*/.exec(l)[0].length), 99);
    const inner = blocks([item[0], ...item.slice(1).map((l) => l.slice(Math.min(depth, /^\s*/.exec(l)[0].length)))].join("\n"));
    const [first, ...others] = inner;
    const opening = first?.kind === "text" ? paragraph(first.lines) : first ? [render(first)] : [];
    return el("li", {}, ...opening, ...others.map(render));
  });
  return el(ordered ? "ol" : "ul", ordered ? { start: parseInt(sign, 10) } : {}, ...nodes);
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));

function table([head, , ...rows]) {
  const top = el("tr", {}, ...cells(head).map((c) => el("th", { scope: "col" }, ...inline(c))));
  const body = rows.map((r) => el("tr", {}, ...cells(r).map((c) => el("td", {}, ...inline(c)))));
  const whole = el("table", {}, el("thead", {}, top), el("tbody", {}, ...body));
  return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" }, whole);
}

function code({ lines, language }) {
  const text = lines.join("\n");
  const bar = el("div", { class: "code-bar" }, el("span", {}, language || "code"), copyButton(() => text, "Copy", "Copy code"));
  return el("div", { class: "code" }, bar, el("pre", { tabindex: "0", "aria-label": "Code" }, el("code", {}, text)));
}

function render(block) {
  const { kind, lines } = block;
  if (kind === "code") return code(block);
  if (kind === "rule") return el("hr");
  if (kind === "list") return list(lines);
  if (kind === "table") return table(lines);
  if (kind === "quote") return el("blockquote", {}, ...blocks(lines.join("\n")).map(render));
  if (kind === "head") {
    const [, marks, title] = HEAD.exec(lines[0]);
    // The page has headings of its own above those of an answer.
    return el(`h${Math.min(6, marks.length + 3)}`, {}, ...inline(title));
  }
  return el("p", {}, ...paragraph(lines));
}

/** Show `text` in `target`. While it grows, only the blocks that changed are made anew. */
export function showMarkdown(target, text) {
  const wanted = blocks(text);
  wanted.forEach((block, i) => {
    const source = JSON.stringify(block);
    const there = target.children[i];
    if (there?.source === source) return;
    const node = render(block);
    node.source = source;
    if (there) there.replaceWith(node);
    else target.append(node);
  });
  while (target.children.length > wanted.length) target.lastChild.remove();
}
