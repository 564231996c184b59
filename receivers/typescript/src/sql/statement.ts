/** SQL as data: a plan yields statements and is handed rows, so that one rule serves every driver. */

import type { Awaitable } from "../inbox.js";

export type Dialect = "postgres" | "sqlite";
export type Row = Readonly<Record<string, unknown>>;

/** A statement for a driver, with `$1` in PostgreSQL and `?` in SQLite. */
export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
  /** Whether it returns rows. Some drivers refuse to look for them otherwise. */
  readonly rows: boolean;
}

/** Statements out, rows in, a result at the end. */
export type Plan<T> = Generator<Statement, T, readonly Row[]>;

/** A statement as it is written here: in PostgreSQL's form, with a cast at every parameter. */
export class Template {
  readonly #text: Record<Dialect, string>;
  readonly #order: readonly number[];
  readonly #rows: boolean;

  constructor(text: string) {
    const parameters = /\$(\d+)(?:::[a-z]+)?/g;
    this.#text = { postgres: text, sqlite: text.replace(parameters, "?") };
    this.#order = [...text.matchAll(parameters)].map((match) => Number(match[1]) - 1);
    this.#rows = /^\s*select\b|\breturning\b/.test(text) || /^\s*with\b/.test(text);
  }

  /** The statement with these values. SQLite's `?` takes them in the order in which they stand. */
  with(dialect: Dialect, ...values: unknown[]): Statement {
    const inOrder = dialect === "postgres" ? values : this.#order.map((at) => values[at]);
    return { text: this.#text[dialect], values: inOrder, rows: this.#rows };
  }
}

/** Runs a plan to its end: at once if the driver answers at once, and as a promise otherwise. */
export function drive<T>(plan: Plan<T>, run: (statement: Statement) => Awaitable<readonly Row[]>): Awaitable<T> {
  let rows: readonly Row[] = [];
  for (;;) {
    const step = plan.next(rows);
    if (step.done) return step.value;
    const answered = run(step.value);
    if (isPromise(answered)) return driveOn(plan, run, answered);
    rows = answered;
  }
}

async function driveOn<T>(
  plan: Plan<T>,
  run: (statement: Statement) => Awaitable<readonly Row[]>,
  first: Promise<readonly Row[]>,
): Promise<T> {
  let rows = await first;
  for (;;) {
    const step = plan.next(rows);
    if (step.done) return step.value;
    rows = await run(step.value);
  }
}

export function isPromise<T>(value: Awaitable<T> | unknown): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** Goes on with a value, or with what a promise brings. */
export function chain<A, B>(value: Awaitable<A>, next: (value: A) => Awaitable<B>): Awaitable<B> {
  return isPromise<A>(value) ? value.then(next) : next(value as A);
}

/** A whole number of a row, as text or as a number of the driver's. */
export function bigintOf(value: unknown): bigint {
  return BigInt(value as string | number | bigint);
}

/**
 * Asked at the end of a transaction: it fails if a statement failed before and its error was caught. Such a transaction
 * can be committed without an error, and nothing of it is kept.
 */
export const PROBE: Statement = { text: "select 1 as whole", values: [], rows: true };
