/**
 * As much of VS Code as the extension touches, for tests on machines without it. What VS Code itself makes of the calls
 * (how a diff looks, whether an edit is one step of undo) is not tested here.
 */

import Module from "node:module";

export class Uri {
  constructor(
    readonly scheme: string,
    readonly path: string,
    readonly query = "",
  ) {}

  static from({ scheme, path, query }: { scheme: string; path: string; query: string }): Uri {
    return new Uri(scheme, path, query);
  }

  toString(): string {
    return `${this.scheme}:${this.path}${this.query && `?${this.query}`}`;
  }
}

class Range {
  constructor(
    readonly line: number,
    readonly character: number,
    readonly endLine: number,
    readonly endCharacter: number,
  ) {}
}

interface TextEdit {
  range: Range;
  text: string;
}

class WorkspaceEdit {
  readonly sets: [Uri, TextEdit[]][] = [];

  set(uri: Uri, edits: TextEdit[]): void {
    this.sets.push([uri, edits]);
  }
}

class TabInputTextDiff {
  constructor(
    readonly original: Uri,
    readonly modified: Uri,
  ) {}
}

const selection = (from: [number, number], to: [number, number]) => ({
  start: { line: from[0], character: from[1] },
  end: { line: to[0], character: to[1] },
});

/** One document in one editor, a user who answers questions as told, and a memory of what was shown. */
export class StandIn {
  readonly uri: Uri;
  selection = selection([0, 0], [0, 0]);
  url = "";
  secrets = new Map<string, string>();
  /** What the user types into input boxes, and the buttons that the user presses; then Escape. */
  typed: string[] = [];
  pressed: string[] = [];
  cancels = false;
  writable = true;
  /** Done when a diff is shown. */
  onPreview = () => {};

  readonly commands = new Map<string, (uri?: Uri) => Promise<void>>();
  readonly messages: string[] = [];
  readonly progress: string[] = [];
  /** How many changes were made: each would be a step of undo. */
  changes = 0;
  preview = "";
  tabs: { input: TabInputTextDiff }[] = [];
  private content = (_: Uri) => "";

  constructor(
    public text: string,
    name: string,
  ) {
    this.uri = new Uri("file", `/home/me/${name}`);
  }

  select(from: [number, number], to: [number, number]): void {
    this.selection = selection(from, to);
  }

  /** Load the extension afresh and activate it. */
  activate(): { subscriptions: unknown[] } {
    const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
    const load = loader._load;
    const path = require.resolve("../src/extension");
    delete require.cache[path];
    loader._load = (name, ...rest) => (name === "vscode" ? this.vscode() : load(name, ...rest));
    const context = {
      subscriptions: [],
      secrets: {
        get: async (key: string) => this.secrets.get(key),
        store: async (key: string, value: string) => void this.secrets.set(key, value),
        delete: async (key: string) => void this.secrets.delete(key),
      },
    };
    try {
      require(path).activate(context);
    } finally {
      loader._load = load;
    }
    return context;
  }

  async run(command: string, uri?: Uri): Promise<void> {
    await this.commands.get(command)!(uri);
  }

  previewInFront(): Uri {
    return this.tabs[0].input.modified;
  }

  private vscode(): unknown {
    const document = {
      uri: this.uri,
      fileName: this.uri.path,
      eol: this.text.includes("\r\n") ? 2 : 1,
      getText: () => this.text,
    };
    const shown = async (message: string, ...buttons: string[]) => {
      this.messages.push(message);
      return buttons.includes(this.pressed[0]) ? this.pressed.shift() : undefined;
    };
    const standIn = this;
    return {
      Uri,
      Range,
      WorkspaceEdit,
      TabInputTextDiff,
      EndOfLine: { LF: 1, CRLF: 2 },
      ProgressLocation: { Notification: 15 },
      TextEdit: { replace: (range: Range, text: string): TextEdit => ({ range, text }) },
      commands: {
        registerCommand: (name: string, run: (uri?: Uri) => Promise<void>) => void this.commands.set(name, run),
        executeCommand: async (name: string, original: Uri, modified: Uri) => {
          if (name !== "vscode.diff") throw new Error(name);
          this.tabs = [{ input: new TabInputTextDiff(original, modified) }];
          this.preview = this.content(modified);
          this.onPreview();
        },
      },
      workspace: {
        getConfiguration: () => ({ get: () => this.url }),
        registerTextDocumentContentProvider: (_: string, provider: { provideTextDocumentContent(uri: Uri): string }) => {
          this.content = (uri) => provider.provideTextDocumentContent(uri);
        },
        openTextDocument: async () => document,
        applyEdit: async (edit: WorkspaceEdit) => this.writable && this.applied(edit),
      },
      window: {
        get activeTextEditor() {
          return { document, selection: standIn.selection };
        },
        tabGroups: {
          get all() {
            return [{ tabs: standIn.tabs }];
          },
          get activeTabGroup() {
            return { activeTab: standIn.tabs[0] };
          },
          close: async (tabs: unknown[]) => {
            this.tabs = this.tabs.filter((tab) => !tabs.includes(tab));
          },
        },
        showInputBox: async () => this.typed.shift(),
        showInformationMessage: shown,
        showWarningMessage: shown,
        showErrorMessage: shown,
        withProgress: (_: unknown, task: (progress: unknown, token: unknown) => unknown) => {
          let cancel = () => {};
          const report = ({ message }: { message: string }) => {
            this.progress.push(message);
            if (this.cancels) cancel();
          };
          const token = { onCancellationRequested: (heard: () => void) => void (cancel = heard) };
          return task({ report }, token);
        },
      },
    };
  }

  /** From the last edit to the first, so that none moves another. */
  private applied(edit: WorkspaceEdit): boolean {
    this.changes++;
    const eol = this.text.includes("\r\n") ? "\r\n" : "\n";
    for (const { range, text } of edit.sets.flatMap(([, edits]) => edits).reverse()) {
      const lines = this.text.split(eol);
      const before = [...lines.slice(0, range.line), lines[range.line].slice(0, range.character)];
      const after = [lines[range.endLine].slice(range.endCharacter), ...lines.slice(range.endLine + 1)];
      this.text = before.join(eol) + text + after.join(eol);
    }
    return true;
  }
}
