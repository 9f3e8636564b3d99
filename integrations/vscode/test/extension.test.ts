/** The commands from end to end with real servers, and with a stand-in for VS Code. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { metric, options, servers, until } from "./server";
import { StandIn } from "./standin";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));

/** A user who is about to ask for an edit that the model knows. */
function about(name: "rename" | "placeholder" | "crlf" | "endless"): StandIn {
  const { url, edits } = servers!;
  const standIn = new StandIn(edits[name].text, edits[name].name);
  standIn.url = url;
  standIn.typed = [edits[name].instruction];
  standIn.activate();
  return standIn;
}

test("every command of the manifest is registered, and no other", () => {
  const standIn = new StandIn("", "a.py");
  const context = standIn.activate();
  const declared = manifest.contributes.commands.map((entry: { command: string }) => entry.command);
  assert.deepEqual([...standIn.commands.keys()].sort(), declared.sort());
  assert.equal(context.subscriptions.length, declared.length + 1);
});

test("what is sent where is not for a workspace to say", () => {
  const settings = manifest.contributes.configuration.properties;
  assert.equal(settings["specedit.url"].scope, "machine");
  assert.deepEqual(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations, Object.keys(settings));
});

test("a rewrite is shown, and made when the user says so", options, async () => {
  const standIn = about("rename");
  standIn.onPreview = () => assert.equal(standIn.text, servers!.edits.rename.text);
  standIn.pressed = ["Apply"];
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.preview, servers!.edits.rename.new);
  assert.equal(standIn.text, servers!.edits.rename.new);
  assert.equal(standIn.changes, 1);
  assert.deepEqual(standIn.tabs, []);
});

test("tokens are counted while they come", options, async () => {
  const standIn = about("rename");
  await standIn.run("specedit.rewrite");
  assert.match(standIn.progress.at(-1)!, /^[1-9]\d* tokens, [1-9]\d* of them guessed$/);
});

test("discarded, the document stays", options, async () => {
  const standIn = about("rename");
  standIn.pressed = ["Discard"];
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.text, servers!.edits.rename.text);
  assert.deepEqual(standIn.tabs, []);
});

test("when the notification is closed, the preview's own buttons are left", options, async () => {
  const standIn = about("rename");
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.tabs.length, 1);
  assert.equal(standIn.changes, 0);
  const preview = standIn.previewInFront();
  await standIn.run("specedit.apply");
  assert.equal(standIn.text, servers!.edits.rename.new);
  standIn.text = servers!.edits.rename.text; // undone
  await standIn.run("specedit.apply", preview);
  assert.match(standIn.messages.at(-1)!, /preview is over/);
  assert.equal(standIn.changes, 1);
});

test("selected lines alone are rewritten", options, async () => {
  const { text, new: renamed } = servers!.edits.rename;
  const standIn = about("rename");
  standIn.text = `# load\n${text}# load\n`;
  standIn.select([1, 4], [6, 0]);
  standIn.pressed = ["Apply"];
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.text, `# load\n${renamed}# load\n`);
});

test("CRLF stays", options, async () => {
  const standIn = about("crlf");
  standIn.pressed = ["Apply"];
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.text, servers!.edits.crlf.new);
});

test("an answer with problems is not shown", options, async () => {
  const standIn = about("placeholder");
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages[0], /^Not taken: .*left out/);
  assert.equal(standIn.preview, "");
});

test("unless the user wants to see it", options, async () => {
  const standIn = about("placeholder");
  standIn.pressed = ["Show it anyway"];
  await standIn.run("specedit.rewrite");
  assert.match(standIn.preview, /rest of the code/);
  assert.equal(standIn.changes, 0);
});

test("an answer that was cut is never shown", options, async () => {
  const standIn = about("endless");
  standIn.pressed = ["Show it anyway"];
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages[0], /^Not taken: .*cut/);
  assert.equal(standIn.preview, "");
});

test("what the user typed meanwhile is not overwritten", options, async () => {
  const standIn = about("rename");
  standIn.onPreview = () => (standIn.text += "# mine\n");
  standIn.pressed = ["Apply"];
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages.at(-1)!, /has changed meanwhile/);
  assert.equal(standIn.text, `${servers!.edits.rename.text}# mine\n`);
  standIn.text = servers!.edits.rename.text; // undone
  await standIn.run("specedit.apply");
  assert.equal(standIn.text, servers!.edits.rename.new);
});

test("a document that cannot be changed keeps the preview", options, async () => {
  const standIn = about("rename");
  standIn.writable = false;
  standIn.pressed = ["Apply"];
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages.at(-1)!, /read-only/);
  assert.equal(standIn.tabs.length, 1);
});

test("cancelling frees the server, and shows nothing", options, async () => {
  const { slow } = servers!;
  const standIn = about("rename");
  standIn.url = slow;
  standIn.cancels = true;
  const before = await metric(slow, 'specedit_answers_total{outcome="cancelled"}');
  await standIn.run("specedit.rewrite");
  assert.deepEqual([standIn.progress.length, standIn.messages, standIn.preview], [1, [], ""]);
  await until(async () => (await metric(slow, 'specedit_answers_total{outcome="cancelled"}')) === before + 1);
});

test("without an instruction nothing is asked", async () => {
  const standIn = new StandIn("x\n", "a.py");
  standIn.url = "http://127.0.0.1:9";
  standIn.typed = [" "];
  standIn.activate();
  await standIn.run("specedit.rewrite");
  assert.deepEqual(standIn.messages, []);
});

test("without a server, what to start is said", async () => {
  const standIn = new StandIn("x\n", "a.py");
  standIn.url = "http://127.0.0.1:9";
  standIn.typed = ["Let x be y."];
  standIn.activate();
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages[0], /run `specedit serve`/);
});

test("a key is kept for one address alone", options, async () => {
  const { locked } = servers!;
  const standIn = new StandIn("x = 1\n", "a.py");
  standIn.activate();
  standIn.url = "http://127.0.0.1:9";
  standIn.typed = [locked.key];
  await standIn.run("specedit.setKey");
  standIn.url = `${locked.url}/`;
  standIn.typed = ["Let x be 2."];
  await standIn.run("specedit.rewrite");
  assert.match(standIn.messages[0], /asks for a key/);
  standIn.typed = [locked.key, "Let x be 2."];
  await standIn.run("specedit.setKey");
  await standIn.run("specedit.rewrite");
  assert.equal(standIn.preview, "x = 2\n");
});

test("an empty key is forgotten", async () => {
  const standIn = new StandIn("", "a.py");
  standIn.activate();
  standIn.url = "http://127.0.0.1:9";
  standIn.typed = ["secret", ""];
  await standIn.run("specedit.setKey");
  assert.deepEqual([...standIn.secrets.values()], ["secret"]);
  await standIn.run("specedit.setKey");
  assert.equal(standIn.secrets.size, 0);
});
