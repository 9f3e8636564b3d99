/** The edit API of `specedit serve`, by fetch. Nothing here knows VS Code. */

/** A token of the answer, and who guessed it ("target": nobody, the model wrote it alone). */
export interface Token {
  text: string;
  source: string;
}

/** What came at one step. */
export interface Piece {
  text: string;
  tokens: Token[];
  rejected: { at: number; source: string; text: string }[];
}

/** Why an answer should not be taken. Line 0 is the whole text. */
export interface Problem {
  line: number;
  message: string;
}

/** The whole answer. With problems it should not be taken; if it is `usable`, it can be in spite of them. */
export interface Rewrite {
  text: string;
  diff: string;
  finish_reason: "stop" | "length";
  problems: Problem[];
  usable: boolean;
}

/** What is asked for. The ending of `name` tells the language; the server reads no file. */
export interface Asked {
  text: string;
  instruction: string;
  name: string;
}

/** Something that the user can put right; the message says how, in one sentence. */
export class SpecEditError extends Error {}

/** The server's address as requests and secrets name it. Throws SpecEditError if it cannot be one. */
export function checkedUrl(url: string): string {
  const trimmed = url.trim().replace(/\/+$/, "");
  const parsed = URL.canParse(trimmed) ? new URL(trimmed) : undefined;
  const sound = parsed && /^https?:$/.test(parsed.protocol) && !parsed.username && !parsed.password;
  if (!sound || parsed.search || parsed.hash) {
    throw new SpecEditError(`"${url}" is no address of a server: set specedit.url to one like http://127.0.0.1:8317.`);
  }
  return trimmed;
}

/** What is wrong with a key, in a sentence; undefined if a header can carry it. */
export function objectionToKey(key: string): string | undefined {
  return /^[\x21-\x7e]*$/.test(key) ? undefined : "A key has letters, digits and signs of ASCII only, and no spaces.";
}

/**
 * Ask for a rewrite, and tell each piece as it comes.
 *
 * Aborting the signal closes the connection, upon which the server stops decoding; the promise is then rejected with
 * fetch's own error. Everything else that can go wrong is a SpecEditError.
 */
export async function rewrite(
  url: string,
  key: string,
  asked: Asked,
  signal: AbortSignal,
  onPiece: (piece: Piece) => void = () => {},
): Promise<Rewrite> {
  const objection = objectionToKey(key);
  if (objection) throw new SpecEditError(objection);
  const address = checkedUrl(url);
  const response = await sent(address, key, asked, signal);
  if (!response.ok || !response.body) throw new SpecEditError(await refusalOf(response, address));
  const strange = `${address} is no server of this version of specedit: update one of the two, or set specedit.url.`;
  for await (const [name, said] of events(response.body, address, strange, signal)) {
    signal.throwIfAborted(); // what came before the abort may hold more than one event
    if (name === "piece" && isPiece(said)) onPiece(said);
    else if (name === "result" && isRewrite(said)) return said;
    else if (isError(said)) throw new SpecEditError(said.error.message);
    else if (name !== "hunk") throw new SpecEditError(strange);
  }
  signal.throwIfAborted();
  throw new SpecEditError(`${address} broke off its answer: look at what the server says, and try again.`);
}

async function sent(
  url: string,
  key: string,
  { text, instruction, name }: Asked,
  signal: AbortSignal,
): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(`${url}/v1/rewrite`, {
      method: "POST",
      headers,
      body: JSON.stringify({ text, instruction, name, stream: true }),
      signal,
      redirect: "error", // code and key are for this server alone
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new SpecEditError(`No server answers at ${url}: run \`specedit serve\`, or set specedit.url to where it runs.`);
  }
}

async function refusalOf(response: Response, url: string): Promise<string> {
  if (response.status === 401) {
    return `${url} asks for a key, and this is not it: run the command "specedit: Set the Server's Key…".`;
  }
  const said: unknown = await response.json().catch(() => undefined);
  return isError(said) ? said.error.message : `${url} answered ${response.status}: see whether \`specedit serve\` runs there.`;
}

/** Server-sent events as they come: name and data. */
async function* events(
  body: AsyncIterable<Uint8Array>,
  url: string,
  strange: string,
  signal: AbortSignal,
): AsyncGenerator<[string, unknown]> {
  const decoder = new TextDecoder();
  let buffered = "";
  try {
    for await (const chunk of body) {
      buffered += decoder.decode(chunk, { stream: true });
      const blocks = buffered.split("\n\n");
      buffered = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parsed(block, strange);
        if (event) yield event;
      }
    }
  } catch (error) {
    if (signal.aborted || error instanceof SpecEditError) throw error;
    throw new SpecEditError(`${url} broke off its answer: look at what the server says, and try again.`);
  }
}

/** One event; undefined for a comment, which only keeps the connection alive. */
function parsed(block: string, strange: string): [string, unknown] | undefined {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return undefined;
  try {
    return [name, JSON.parse(data)];
  } catch {
    throw new SpecEditError(strange);
  }
}

function has<K extends string>(value: unknown, ...keys: K[]): value is Record<K, unknown> {
  return typeof value === "object" && value !== null && keys.every((key) => key in value);
}

function isPiece(value: unknown): value is Piece {
  return has(value, "text", "tokens") && typeof value.text === "string" && Array.isArray(value.tokens);
}

function isRewrite(value: unknown): value is Rewrite {
  if (!has(value, "text", "diff", "problems", "usable")) return false;
  return typeof value.text === "string" && typeof value.diff === "string" && Array.isArray(value.problems);
}

function isError(value: unknown): value is { error: { message: string } } {
  return has(value, "error") && has(value.error, "message") && typeof value.error.message === "string";
}
