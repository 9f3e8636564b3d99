/** The commands. What is asked and what becomes of the text is in client.ts and edit.ts. */

import * as vscode from "vscode";
import { checkedUrl, objectionToKey, rewrite, SpecEditError, type Rewrite } from "./client";
import { applied, editsFor, objectionTo, partOf, type Edit, type Part } from "./edit";

const SCHEME = "specedit";

/** A change that is shown and not yet made. It holds for the text that was sent, and for no other. */
interface Proposal {
  document: vscode.Uri;
  name: string;
  before: string;
  after: string;
  edits: Edit[];
}

export function activate(context: vscode.ExtensionContext): void {
  const proposals = new Proposals();
  const command = (name: string, run: (uri?: vscode.Uri) => Promise<void>) =>
    vscode.commands.registerCommand(`specedit.${name}`, (uri?: unknown) =>
      saying(() => run(uri instanceof vscode.Uri ? uri : undefined)),
    );
  context.subscriptions.push(
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, proposals),
    command("rewrite", () => rewriteActive(context.secrets, proposals)),
    command("setKey", () => setKey(context.secrets)),
    command("apply", (uri) => proposals.apply(uri ?? previewInFront())),
    command("discard", (uri) => proposals.discard(uri ?? previewInFront())),
  );
}

/** Run it; what the user can put right becomes a message. */
async function saying(run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    if (!(error instanceof SpecEditError)) throw error;
    void vscode.window.showErrorMessage(error.message);
  }
}

function configuredUrl(): string {
  return checkedUrl(vscode.workspace.getConfiguration("specedit").get("url", ""));
}

/** A key is kept for the address that it was given for, so that no other address ever gets it. */
function secretFor(url: string): string {
  return `key of ${url}`;
}

async function setKey(secrets: vscode.SecretStorage): Promise<void> {
  const url = configuredUrl();
  const key = await vscode.window.showInputBox({
    prompt: `The key that ${url} asks for. Leave it empty to forget the one that is kept.`,
    password: true,
    ignoreFocusOut: true,
    validateInput: objectionToKey,
  });
  if (key === undefined) return;
  await (key ? secrets.store(secretFor(url), key) : secrets.delete(secretFor(url)));
}

async function rewriteActive(secrets: vscode.SecretStorage, proposals: Proposals): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.uri.scheme === SCHEME) {
    throw new SpecEditError("There is nothing to rewrite: open a file, and click into it.");
  }
  const { document } = editor;
  const before = document.getText();
  const eol = document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n";
  const part = partOf(before, eol, editor.selection);
  const name = document.fileName.split(/[\\/]/).pop() ?? "";
  const instruction = await vscode.window.showInputBox({
    prompt: `What to do with ${part.text === before ? name : `lines ${part.first + 1} to ${part.last + 1} of ${name}`}`,
    placeHolder: "Rename load to read_config.",
    ignoreFocusOut: true,
  });
  if (!instruction?.trim()) return;
  const answer = await asked(secrets, part, instruction, name);
  if (!answer) return;

  const objection = objectionTo(answer);
  if (objection) {
    const anyway = answer.usable ? ["Show it anyway"] : [];
    if (!(await vscode.window.showWarningMessage(`Not taken: ${objection}`, ...anyway))) return;
  }
  if (document.getText() !== before) throw changed(name);
  const edits = editsFor(part, answer, eol);
  if (edits.length === 0) {
    void vscode.window.showInformationMessage("The model changed nothing: say more exactly what is to change.");
    return;
  }
  await proposals.show({ document: document.uri, name, before, after: applied(before, edits, eol), edits });
}

/** The server's answer, while a notification counts tokens; undefined if the user cancels there. */
async function asked(
  secrets: vscode.SecretStorage,
  part: Part,
  instruction: string,
  name: string,
): Promise<Rewrite | undefined> {
  const url = configuredUrl();
  const key = (await secrets.get(secretFor(url))) ?? "";
  const options = { location: vscode.ProgressLocation.Notification, title: `Rewriting ${name}`, cancellable: true };
  return vscode.window.withProgress(options, async (progress, cancellation) => {
    const stop = new AbortController();
    cancellation.onCancellationRequested(() => stop.abort());
    if (cancellation.isCancellationRequested) stop.abort();
    let tokens = 0;
    let guessed = 0;
    try {
      return await rewrite(url, key, { text: part.text, instruction, name }, stop.signal, (piece) => {
        tokens += piece.tokens.length;
        guessed += piece.tokens.filter((token) => token.source !== "target").length;
        progress.report({ message: `${tokens} tokens, ${guessed} of them guessed` });
      });
    } catch (error) {
      if (stop.signal.aborted) return undefined;
      throw error;
    }
  });
}

/** The changes that wait for the user's word, each with a read-only document that shows the outcome. */
class Proposals implements vscode.TextDocumentContentProvider {
  private readonly open = new Map<string, Proposal>();
  private count = 0;

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.open.get(uri.toString())?.after ?? "This preview is over.";
  }

  async show(proposal: Proposal): Promise<void> {
    // The path's ending tells VS Code the language, the number keeps two previews of a file apart.
    const path = proposal.document.path;
    const uri = vscode.Uri.from({ scheme: SCHEME, path, query: String(++this.count) });
    this.open.set(uri.toString(), proposal);
    await vscode.commands.executeCommand("vscode.diff", proposal.document, uri, `${proposal.name} ↔ rewritten`, {
      preview: false, // another preview does not take its place
    });
    // The notification may be overlooked or closed: the preview's title has the same two buttons.
    const choice = await vscode.window.showInformationMessage(`Change ${proposal.name} like this?`, "Apply", "Discard");
    if (!this.open.has(uri.toString())) return;
    if (choice === "Apply") await this.apply(uri);
    if (choice === "Discard") await this.discard(uri);
  }

  /** Change the document, in one step of undo. It is left unsaved. */
  async apply(uri: vscode.Uri | undefined): Promise<void> {
    const proposal = uri && this.open.get(uri.toString());
    if (!proposal) throw new SpecEditError('This preview is over: run "specedit: Rewrite" again.');
    const document = await vscode.workspace.openTextDocument(proposal.document);
    // Not by version: a document that was closed and opened again begins anew, and what was undone is as before.
    if (document.getText() !== proposal.before) throw changed(proposal.name);
    const change = new vscode.WorkspaceEdit();
    change.set(
      proposal.document,
      proposal.edits.map(({ start, end, text }) =>
        vscode.TextEdit.replace(new vscode.Range(start.line, start.character, end.line, end.character), text),
      ),
    );
    if (!(await vscode.workspace.applyEdit(change))) {
      throw new SpecEditError(`VS Code did not let ${proposal.name} be changed: see whether it is read-only.`);
    }
    await this.discard(uri);
  }

  async discard(uri: vscode.Uri | undefined): Promise<void> {
    if (!uri) return;
    this.open.delete(uri.toString());
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
    await vscode.window.tabGroups.close(tabs.filter((tab) => previewIn(tab)?.toString() === uri.toString()));
  }
}

function previewIn(tab: vscode.Tab | undefined): vscode.Uri | undefined {
  const input = tab?.input;
  const isOurs = input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME;
  return isOurs ? input.modified : undefined;
}

function previewInFront(): vscode.Uri | undefined {
  return previewIn(vscode.window.tabGroups.activeTabGroup.activeTab);
}

function changed(name: string): SpecEditError {
  return new SpecEditError(`${name} has changed meanwhile and was left as it is: undo that, or rewrite it again.`);
}
