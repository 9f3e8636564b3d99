/**
 * What becomes of a document's text. Nothing here knows VS Code, but positions are as there: lines and UTF-16 columns,
 * both from 0.
 */

import type { Rewrite } from "./client";

export interface Position {
  line: number;
  character: number;
}

export interface Range {
  start: Position;
  end: Position;
}

export interface Edit extends Range {
  text: string;
}

/** The lines of a document that are to be rewritten, `last` included. */
export interface Part {
  first: number;
  last: number;
  text: string;
}

/** Lines of the old text and what stands in their place in the new one; ends are not included. */
interface Run {
  oldStart: number;
  oldEnd: number;
  newStart: number;
  newEnd: number;
}

/** The whole document, or of what is selected the whole lines. */
export function partOf(text: string, eol: string, selection: Range): Part {
  const lines = linesOf(text);
  const { start, end } = selection;
  if (start.line === end.line && start.character === end.character) {
    return { first: 0, last: lines.length - 1, text };
  }
  // A selection that ends before a line's first letter shows nothing of that line.
  const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
  return { first: start.line, last, text: lines.slice(start.line, last + 1).join(eol) };
}

/** Why an answer is not to be taken; undefined if it is. */
export function objectionTo(answer: Rewrite): string | undefined {
  if (answer.problems.length > 0) return answer.problems[0].message;
  return answer.usable ? undefined : "The answer is not whole: try again, or ask for a smaller change.";
}

/**
 * The edits that turn the part into the answer, in order, and touching only letters that change: so cursors,
 * breakpoints and folds of all other places stay.
 *
 * The server has already compared the two texts: its diff says which lines belong together. Should it not lead to
 * the answer, one edit does.
 */
export function editsFor(part: Part, answer: Pick<Rewrite, "text" | "diff">, eol: string): Edit[] {
  const old = linesOf(part.text);
  const now = linesOf(answer.text);
  const runs = runsOf(answer.diff, old.length, now.length);
  const fits = runs.every((run) => run.oldEnd <= old.length && run.newEnd <= now.length);
  let edits = fits ? runs.flatMap((run) => editsOf(run, old, now, eol)) : [];
  if (applied(part.text, edits, eol) !== now.join(eol)) {
    edits = editsOf({ oldStart: 0, oldEnd: old.length, newStart: 0, newEnd: now.length }, old, now, eol);
  }
  return edits.map(({ start, end, text }) => ({
    start: { line: start.line + part.first, character: start.character },
    end: { line: end.line + part.first, character: end.character },
    text,
  }));
}

/** The text after the edits, which are in order and do not overlap. */
export function applied(text: string, edits: Edit[], eol: string): string {
  const lines = linesOf(text);
  const starts = [0];
  for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
  const offset = ({ line, character }: Position) => starts[line] + character;
  const flat = lines.join("\n");
  let result = "";
  let done = 0;
  for (const edit of edits) {
    result += flat.slice(done, offset(edit.start)) + edit.text;
    done = offset(edit.end);
  }
  return linesOf(result + flat.slice(done)).join(eol);
}

/** As VS Code counts lines: text after the last newline, be it empty, is one too. */
function linesOf(text: string): string[] {
  return text.split(/\r\n|\n|\r/);
}

/** The changed lines that a diff in git's form names. */
function runsOf(diff: string, oldLength: number, newLength: number): Run[] {
  const runs: Run[] = [];
  let run: Run | undefined;
  let inHunk = false;
  let old = 0;
  let now = 0;
  const changed = () => {
    if (!run) runs.push((run = { oldStart: old, oldEnd: old, newStart: now, newEnd: now }));
    return run;
  };
  for (const line of diff.split("\n")) {
    const head = /^@@ -(\d+)(,0)?(?:,\d+)? \+(\d+)(,0)?(?:,\d+)? @@/.exec(line);
    if (head) {
      // Lines count from 1, and of no lines it is the one before that is named.
      old = Number(head[1]) - (head[2] ? 0 : 1);
      now = Number(head[3]) - (head[4] ? 0 : 1);
      inHunk = true;
      run = undefined;
    } else if (!inHunk) {
      continue;
    } else if (line.startsWith("-")) {
      changed().oldEnd = ++old;
    } else if (line.startsWith("+")) {
      changed().newEnd = ++now;
    } else if (line.startsWith(" ")) {
      old++;
      now++;
      run = undefined;
    }
  }
  // A diff does not count what is after the last newline.
  if (oldLength - old !== newLength - now) {
    const rest = changed();
    rest.oldEnd = oldLength;
    rest.newEnd = newLength;
  }
  return runs;
}

function editsOf(run: Run, old: string[], now: string[], eol: string): Edit[] {
  const gone = old.slice(run.oldStart, run.oldEnd);
  const come = now.slice(run.newStart, run.newEnd);
  const { oldStart, oldEnd } = run;
  const whole = oldEnd < old.length;
  if (gone.length === 0) {
    const [line, text] = whole ? [oldStart, [...come, ""]] : [oldStart - 1, ["", ...come]];
    const at = { line, character: whole ? 0 : old[line].length };
    return [{ start: at, end: at, text: text.join(eol) }];
  }
  if (come.length === 0 && (whole || oldStart > 0)) {
    // Together with one newline: the one after them, or at the end of the text the one before.
    const start = whole ? { line: oldStart, character: 0 } : endOf(old, oldStart - 1);
    const end = whole ? { line: oldEnd, character: 0 } : endOf(old, oldEnd - 1);
    return [{ start, end, text: "" }];
  }
  if (gone.length === come.length) {
    return gone.flatMap((line, number) => trimmed(oldStart + number, line, come[number], eol));
  }
  return trimmed(oldStart, gone.join("\n"), come.join("\n"), eol);
}

function endOf(lines: string[], line: number): Position {
  return { line, character: lines[line].length };
}

/** What differs between two texts, of which the old one begins at a line. Both have "\n" newlines. */
function trimmed(line: number, old: string, now: string, eol: string): Edit[] {
  if (old === now) return [];
  const shorter = Math.min(old.length, now.length);
  let head = 0;
  while (head < shorter && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < shorter - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  // Half a letter beyond U+FFFF is none.
  if (head > 0 && /[\ud800-\udbff]/.test(old[head - 1])) head--;
  if (tail > 0 && /[\udc00-\udfff]/.test(old[old.length - tail])) tail--;
  const at = (offset: number): Position => {
    const before = old.slice(0, offset).split("\n");
    return { line: line + before.length - 1, character: before[before.length - 1].length };
  };
  const text = now.slice(head, now.length - tail).replaceAll("\n", eol);
  return [{ start: at(head), end: at(old.length - tail), text }];
}
