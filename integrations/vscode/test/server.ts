/** The real servers that tests/integrations/test_vscode.py starts, and what their models know. */

interface Known {
  name: string;
  text: string;
  instruction: string;
  /** What the text becomes; null where the answer must not be taken. */
  new: string | null;
}

interface Servers {
  /** Has a small model that knows the edits below. */
  url: string;
  /** Asks for a key. */
  locked: { url: string; key: string };
  /** Takes some twenty seconds for any answer. */
  slow: string;
  edits: Record<"rename" | "placeholder" | "crlf" | "endless", Known>;
}

const given = process.env.SPECEDIT_TEST_SERVERS;

export const servers: Servers | undefined = given ? JSON.parse(given) : undefined;

/** For tests that need them. */
export const options = { skip: servers ? false : "pytest tests/integrations/test_vscode.py starts the servers" };

/** The value of a line of /metrics; 0 before there is one. */
export async function metric(url: string, line: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const found = text.split("\n").find((other) => other.startsWith(`${line} `));
  return Number(found?.slice(line.length) ?? 0);
}

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 20_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error("it did not happen");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
