import assert from "node:assert/strict";
import { test } from "node:test";
import { rewrite, type Rewrite } from "../src/client";
import { applied, editsFor, objectionTo, partOf, type Edit, type Range } from "../src/edit";
import { options, servers } from "./server";

const whole = (text: string) => ({ first: 0, last: text.split("\n").length - 1, text });
const span = (line: number, from: number, to: number): Range => ({
  start: { line, character: from },
  end: { line, character: to },
});
const selected = (from: [number, number], to: [number, number]): Range => ({
  start: { line: from[0], character: from[1] },
  end: { line: to[0], character: to[1] },
});

/** The edits, after seeing that they lead from the one text to the other. */
function edits(before: string, after: string, diff: string, eol = "\n"): Edit[] {
  const found = editsFor(whole(before), { text: after, diff }, eol);
  assert.equal(applied(before, found, eol), after.replace(/\r\n|\n/g, eol));
  return found;
}

test("nothing selected is the whole document", () => {
  assert.deepEqual(partOf("a\nb\n", "\n", span(1, 1, 1)), { first: 0, last: 2, text: "a\nb\n" });
});

test("a selection is widened to whole lines", () => {
  assert.deepEqual(partOf("a\nbcd\nefg\nh\n", "\n", selected([1, 2], [2, 1])), { first: 1, last: 2, text: "bcd\nefg" });
});

test("a line of which nothing is selected is left out", () => {
  assert.deepEqual(partOf("a\nb\nc\n", "\n", selected([0, 0], [1, 0])), { first: 0, last: 0, text: "a" });
});

test("a part keeps CRLF", () => {
  assert.equal(partOf("a\r\nb\r\nc", "\r\n", selected([0, 0], [1, 1])).text, "a\r\nb");
});

test("only the letters that change are touched", () => {
  const diff = "@@ -1,3 +1,3 @@\n a\n-x = old(1)\n+x = new(1)\n b\n";
  assert.deepEqual(edits("a\nx = old(1)\nb\n", "a\nx = new(1)\nb\n", diff), [{ ...span(1, 4, 7), text: "new" }]);
});

test("lines that change side by side are edits of their own", () => {
  const diff = "@@ -1,2 +1,2 @@\n-f(a)\n-f(b)\n+g(a)\n+g(b)\n";
  assert.deepEqual(edits("f(a)\nf(b)\n", "g(a)\ng(b)\n", diff), [
    { ...span(0, 0, 1), text: "g" },
    { ...span(1, 0, 1), text: "g" },
  ]);
});

test("new lines go between the others", () => {
  const diff = "@@ -1,2 +1,3 @@\n a\n+b\n c\n";
  assert.deepEqual(edits("a\nc\n", "a\nb\nc\n", diff), [{ ...span(1, 0, 0), text: "b\n" }]);
});

test("lines that go take their newline along", () => {
  const diff = "@@ -1,3 +1,2 @@\n a\n-b\n c\n";
  assert.deepEqual(edits("a\nb\nc\n", "a\nc\n", diff), [{ ...selected([1, 0], [2, 0]), text: "" }]);
});

test("two hunks", () => {
  const lines = Array.from({ length: 20 }, (_, number) => `line ${number}`);
  const after = lines.with(1, "one").with(18, "eighteen");
  const diff =
    "@@ -1,5 +1,5 @@\n line 0\n-line 1\n+one\n line 2\n line 3\n line 4\n" +
    "@@ -16,5 +16,5 @@\n line 15\n line 16\n line 17\n-line 18\n+eighteen\n line 19\n";
  const found = edits(lines.join("\n"), after.join("\n"), diff);
  assert.deepEqual(found.map((edit) => edit.start.line), [1, 18]);
});

test("lines that look like a diff's own", () => {
  const diff = "@@ -1,3 +1,3 @@\n @@ -9,9 +9,9 @@\n--- a\n+-- b\n +c\n";
  assert.deepEqual(edits("@@ -9,9 +9,9 @@\n-- a\n+c\n", "@@ -9,9 +9,9 @@\n-- b\n+c\n", diff), [
    { ...span(1, 3, 4), text: "b" },
  ]);
});

for (const [before, after, diff] of [
  ["a\nb", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"],
  ["a\nb\n", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n"],
  ["a\nb\n", "a", "@@ -1,2 +1 @@\n-a\n-b\n+a\n\\ No newline at end of file\n"],
  ["a", "b\nc\n", "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+b\n+c\n"],
  ["", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"],
  ["a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"],
]) {
  const shown = `${JSON.stringify(before)} to ${JSON.stringify(after)}`;
  test(`the end of a text: ${shown}`, () => assert.ok(edits(before, after, diff).length > 0));
  test(`without a diff: ${shown}`, () => assert.equal(edits(before, after, "").length, 1));
  test(`CRLF: ${shown}`, () => {
    const found = edits(before.replaceAll("\n", "\r\n"), after, diff, "\r\n");
    assert.ok(found.every((edit) => !/(?<!\r)\n/.test(edit.text)));
  });
}

test("a diff of something else does no harm", () => {
  const diff = "@@ -1,2 +1,2 @@\n-q\n+r\n s\n@@ -70,1 +70,1 @@\n-t\n+u\n";
  assert.deepEqual(edits("a\nb\nc\n", "a\nB\nc\n", diff), [{ ...span(1, 0, 1), text: "B" }]);
});

test("letters beyond U+FFFF are not halved", () => {
  const diff = "@@ -1 +1 @@\n-x😀y\n+x😁y\n";
  assert.deepEqual(edits("x😀y\n", "x😁y\n", diff), [{ ...span(0, 1, 3), text: "😁" }]);
  const common = "@@ -1 +1 @@\n-x\u{1F600}y\n+x\u{1FA00}y\n"; // these two share their second half
  assert.deepEqual(edits("x\u{1F600}y\n", "x\u{1FA00}y\n", common), [{ ...span(0, 1, 3), text: "\u{1FA00}" }]);
});

test("an answer that is the old text gives no edits", () => assert.deepEqual(edits("a\r\nb", "a\nb", "", "\r\n"), []));

test("edits of a part stand where the part stands", () => {
  const part = partOf("a\nold\nc\n", "\n", span(1, 0, 3));
  const found = editsFor(part, { text: "new", diff: "@@ -1 +1 @@\n-old\n+new\n" }, "\n");
  assert.equal(applied("a\nold\nc\n", found, "\n"), "a\nnew\nc\n");
});

test("an answer with problems is refused in the server's words", () => {
  const answer = { text: "", diff: "", finish_reason: "stop", problems: [], usable: true } satisfies Rewrite;
  assert.equal(objectionTo(answer), undefined);
  assert.equal(objectionTo({ ...answer, problems: [{ line: 3, message: "No." }] }), "No.");
  assert.match(objectionTo({ ...answer, usable: false }) ?? "", /not whole/);
});

for (const name of ["rename", "crlf"] as const) {
  test(`the server's own diff leads to its answer: ${name}`, options, async () => {
    const known = servers!.edits[name];
    const eol = known.text.includes("\r\n") ? "\r\n" : "\n";
    const answer = await rewrite(servers!.url, "", known, new AbortController().signal);
    const found = editsFor(whole(known.text), answer, eol);
    assert.equal(applied(known.text, found, eol), known.new);
    const touched = found.reduce((sum, edit) => sum + edit.end.character - edit.start.character, 0);
    assert.ok(touched < known.text.length / 4, JSON.stringify(found));
  });
}
