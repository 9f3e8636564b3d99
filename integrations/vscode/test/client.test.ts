import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { checkedUrl, rewrite, SpecEditError, type Piece } from "../src/client";
import { metric, options, servers, until } from "./server";

const ASKED = { text: "x = 1\n", instruction: "Let x be 2.", name: "a.py" };
const never = new AbortController().signal;
const closing: (() => void)[] = [];
after(() => closing.forEach((close) => close()));

/** The address of a server that answers so. */
async function strange(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  closing.push(() => server.close().closeAllConnections());
  await new Promise((resolve) => server.once("listening", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Rejected with one sentence that says this. */
function says(promise: Promise<unknown>, pattern: RegExp): Promise<void> {
  return assert.rejects(promise, (error: Error) => {
    assert.ok(error instanceof SpecEditError, String(error));
    assert.match(error.message, pattern);
    assert.match(error.message, /\.$/);
    return true;
  });
}

test("an answer comes in pieces, and whole", options, async () => {
  const { url, edits } = servers!;
  const pieces: Piece[] = [];
  const answer = await rewrite(url, "", edits.rename, never, (piece) => pieces.push(piece));
  assert.equal(answer.text, edits.rename.new);
  assert.equal(pieces.map((piece) => piece.text).join(""), edits.rename.new);
  assert.deepEqual(answer.problems, []);
});

test("pieces say who guessed their tokens", options, async () => {
  const { url, edits } = servers!;
  const sources = new Set<string>();
  await rewrite(url, "", edits.rename, never, (piece) => piece.tokens.forEach((token) => sources.add(token.source)));
  assert.ok(sources.has("target"));
  assert.ok(sources.size > 1);
});

test("problems are told", options, async () => {
  const { url, edits } = servers!;
  const answer = await rewrite(url, "", edits.placeholder, never);
  assert.equal(answer.problems.length, 1);
  assert.ok(answer.usable);
});

test("an answer that was cut is not usable", options, async () => {
  const { url, edits } = servers!;
  const answer = await rewrite(url, "", edits.endless, never);
  assert.equal(answer.finish_reason, "length");
  assert.ok(!answer.usable);
});

test("CRLF stays", options, async () => {
  const { url, edits } = servers!;
  assert.equal((await rewrite(url, "", edits.crlf, never)).text, edits.crlf.new);
});

test("who cancels frees the server's row", options, async () => {
  const { slow } = servers!;
  const cancelled = 'specedit_answers_total{outcome="cancelled"}';
  const before = await metric(slow, cancelled);
  const stop = new AbortController();
  let running: Promise<number> | undefined;
  const answer = rewrite(slow, "", ASKED, stop.signal, () => {
    running ??= metric(slow, "specedit_running").finally(() => stop.abort());
  });
  await assert.rejects(answer, { name: "AbortError" });
  assert.equal(await running, 1);
  await until(async () => (await metric(slow, "specedit_running")) === 0);
  assert.equal(await metric(slow, cancelled), before + 1);
});

test("who cancels before the first word is heard too", async () => {
  const stop = new AbortController();
  let left = false;
  const url = await strange((request) => {
    request.socket.once("close", () => (left = true));
    stop.abort();
  });
  await assert.rejects(rewrite(url, "", ASKED, stop.signal), { name: "AbortError" });
  await until(() => left);
});

test("a key opens a server that asks for one", options, async () => {
  const { locked } = servers!;
  assert.equal((await rewrite(locked.url, locked.key, ASKED, never)).text, "x = 2\n");
});

test("a key that is wrong or missing is said, with the command that sets it", options, async () => {
  await says(rewrite(servers!.locked.url, "wrong", ASKED, never), /Set the Server's Key/);
  await says(rewrite(servers!.locked.url, "", ASKED, never), /Set the Server's Key/);
});

test("what the server refuses is told in its words", options, async () => {
  await says(rewrite(servers!.url, "", { ...ASKED, instruction: " " }, never), /instruction/);
});

test("without a server, what to start is said", async () => {
  await says(rewrite("http://127.0.0.1:9", "", ASKED, never), /run `specedit serve`/);
});

test("a key that no header can carry is said and not sent", async () => {
  await says(rewrite("http://127.0.0.1:9", "schlüssel", ASKED, never), /ASCII/);
});

for (const url of ["", "127.0.0.1:8317", "file:///etc/passwd", "http://", "http://me:secret@localhost", "http://a/?b"]) {
  test(`"${url}" is no address`, () => assert.throws(() => checkedUrl(url), /is no address of a server.*\.$/));
}

test("an address may end with slashes", () => assert.equal(checkedUrl(" http://[::1]:1// "), "http://[::1]:1"));

test("neither code nor key follow a redirect", async () => {
  let asked = 0;
  const other = await strange((_, response) => {
    asked++;
    response.end();
  });
  const url = await strange((_, response) => response.writeHead(307, { Location: `${other}/v1/rewrite` }).end());
  await says(rewrite(url, "secret", ASKED, never), /specedit serve/);
  assert.equal(asked, 0);
});

test("events are read however they are cut, comments left out", async () => {
  const result = { text: "é𝄞", diff: "", problems: [], usable: true, finish_reason: "stop" };
  const bytes = Buffer.from(`: still working\n\nevent: result\ndata: ${JSON.stringify(result)}\n\n`);
  const url = await strange(async (_, response) => {
    for (const byte of bytes) {
      response.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    response.end();
  });
  assert.deepEqual(await rewrite(url, "", ASKED, never), result);
});

test("an error in mid-stream is told", async () => {
  const url = await strange((_, response) => response.end('data: {"error":{"message":"The model failed."}}\n\n'));
  await says(rewrite(url, "", ASKED, never), /^The model failed\.$/);
});

test("an answer that ends too early is said to", async () => {
  const url = await strange((_, response) => response.end('event: hunk\ndata: {"text":""}\n\nevent: res'));
  await says(rewrite(url, "", ASKED, never), /broke off/);
});

test("a connection that breaks is said to", async () => {
  const url = await strange((request, response) => {
    response.write(": still working\n\n");
    setTimeout(() => request.socket.destroy(), 50);
  });
  await says(rewrite(url, "", ASKED, never), /broke off/);
});

for (const body of [
  "data: hello\n\n",
  "data: 5\n\n",
  'data: {"error": "boom"}\n\n',
  "event: piece\ndata: {}\n\n",
  'event: result\ndata: {"text": ""}\n\n',
]) {
  test(`${JSON.stringify(body)} is no answer of ours`, async () => {
    const url = await strange((_, response) => response.end(body));
    await says(rewrite(url, "", ASKED, never), /no server of this version/);
  });
}

test("a page of another server is not taken for an answer", async () => {
  const url = await strange((_, response) => response.writeHead(404).end("<h1>Not found</h1>"));
  await says(rewrite(url, "", ASKED, never), /answered 404/);
});
