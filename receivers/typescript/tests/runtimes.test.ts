import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SigningKey } from "../src/secrets.js";
import { httpTarget, ordeal, TEST_SECRET } from "../src/testing.js";
import { installed, temporaryFolder } from "./support/services.js";

const SIGNING_KEY = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
const ENVIRONMENT = { SECRET: TEST_SECRET, PUBLIC_KEY: new SigningKey(SIGNING_KEY).verifyingKey };
const children: ChildProcess[] = [];
// Some of them start others: each has a process group of its own, which ends as a whole.
afterAll(() => {
  for (const { pid } of children) if (pid !== undefined) process.kill(-pid, "SIGKILL");
});

const child = (name: string) => fileURLToPath(new URL(`./children/${name}`, import.meta.url));
const program = (path: string) => join(installed(), "node_modules", path);

/** Starts a program that says which port it listens on. */
async function start(command: string, args: string[], folder = process.cwd()): Promise<string> {
  const environment = { ...process.env, ...ENVIRONMENT, DENO_NO_UPDATE_CHECK: "1", NEXT_TELEMETRY_DISABLED: "1" };
  const started = spawn(command, args, {
    cwd: folder,
    detached: true,
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(started);
  for await (const line of createInterface(started.stdout)) {
    const [, port] = /listening on (\d+)$|http:\/\/127.0.0.1:(\d+)$/.exec(line)?.filter(Boolean) ?? [];
    if (port !== undefined) return `http://127.0.0.1:${port}/`;
  }
  throw new Error(`${command} ended before it listened`);
}

/** workerd wants every module by its name beside its configuration, and tells its port on a file descriptor. */
async function startWorkerd(): Promise<string> {
  const folder = temporaryFolder();
  cpSync(fileURLToPath(new URL("../dist/esm", import.meta.url)), join(folder, "railpost"), { recursive: true });
  cpSync(child("worker.js"), join(folder, "worker.js"));
  writeFileSync(join(folder, "config.capnp"), workerdConfig(folder));
  const workerd = program("@cloudflare/workerd-linux-64/bin/workerd");
  const args = ["serve", join(folder, "config.capnp"), "--control-fd=3"];
  const started = spawn(workerd, args, { detached: true, stdio: ["ignore", "inherit", "inherit", "pipe"] });
  children.push(started);
  for await (const line of createInterface(started.stdio[3] as NodeJS.ReadableStream)) {
    const { event, port } = JSON.parse(line) as { event: string; port: number };
    if (event === "listen") return `http://127.0.0.1:${port}/`;
  }
  throw new Error("workerd ended before it listened");
}

function workerdConfig(folder: string): string {
  const text = (value: string) => JSON.stringify(value);
  // Modules that import what Workers do not have.
  const unwanted = /kysely|drizzle|node\.js|express|fastify/;
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" });
  const needed = files.filter((file) => file.endsWith(".js") && !unwanted.test(file) && file !== "worker.js");
  const modules = ["worker.js", ...needed].map((file) => `(name = ${text(file)}, esModule = embed ${text(file)})`);
  const bindings = Object.entries(ENVIRONMENT).map(([name, value]) => `(name = ${text(name)}, text = ${text(value)})`);
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [${modules.join(", ")}],
    compatibilityDate = "2026-01-01", compatibilityFlags = ["nodejs_compat"], bindings = [${bindings.join(", ")}],
  ))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`;
}

/** An application of Next.js. */
const nextApplication = join(installed(), "next-application");

function writeNextApplication(): void {
  rmSync(nextApplication, { recursive: true, force: true });
  const [route, railpost] = [join(nextApplication, "app", "hook"), join(nextApplication, "node_modules", "railpost")];
  for (const folder of [route, railpost]) mkdirSync(folder, { recursive: true });
  for (const part of ["package.json", "dist"]) {
    cpSync(fileURLToPath(new URL(`../${part}`, import.meta.url)), join(railpost, part), { recursive: true });
  }
  cpSync(child("next-route.js"), join(route, "route.js"));
  const layout = "export default ({ children }) => <html><body>{children}</body></html>;\n";
  writeFileSync(join(nextApplication, "app", "layout.js"), layout);
  const config = { turbopack: { root: installed() } };
  writeFileSync(join(nextApplication, "next.config.mjs"), `export default ${JSON.stringify(config)};\n`);
  writeFileSync(join(nextApplication, "package.json"), '{"private":true}');
}

async function startNext(): Promise<string> {
  writeNextApplication();
  const args = [program("next/dist/bin/next"), "dev", "-p", "0", "-H", "127.0.0.1"];
  return `${await start(process.execPath, args, nextApplication)}hook`;
}

const runtimes: Record<string, () => Promise<string>> = {
  Bun: () => start(program("@oven/bun-linux-x64/bin/bun"), [child("bun.js")]),
  Deno: () => start(program("@deno/linux-x64-glibc/deno"), ["run", "--allow-all", "--no-config", child("deno.js")]),
  "Cloudflare's workerd": startWorkerd,
  "Next.js": startNext,
};

describe.each(Object.entries(runtimes))("on %s", (_name, launch) => {
  let url = "";

  beforeAll(async () => {
    url = await launch();
  });

  it.each([
    ["HMAC", TEST_SECRET],
    ["Ed25519", SIGNING_KEY],
  ])("each effect happens once and in order, signed with %s", async (form, signer) => {
    const bodies = ["one", "two", "three"].map((text) => `${form} ${text}`);
    const events = bodies.map((body) => ({ key: "A", body }));
    expect((await ordeal(events, httpTarget(url), { signers: [signer] })).problems).toEqual([]);
    const effects = (await (await fetch(url)).json()) as { text: string }[];
    const own = effects.map(({ text }) => text).filter((text) => text.startsWith(form));
    expect(own).toEqual(bodies);
  });
});
