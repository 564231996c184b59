/** The real server, and what a test does to it over its API. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { serverBinary, temporaryFolder } from "./services.js";

const run = promisify(execFile);

export interface CreatedEndpoint {
  readonly id: string;
  readonly secret: { readonly value: string };
}

/** The server refuses variables of its own prefix that it does not know. */
function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("RAILPOST_")));
}

/** A server with a store of its own. */
export class RailpostServer {
  readonly #folder = temporaryFolder();
  #child: ChildProcess | undefined;
  #url = "";
  #key = "";

  async start(): Promise<void> {
    const args = ["serve", "--data-dir", join(this.#folder, "data"), "--listen", "127.0.0.1:0", "--log-level", "error"];
    const child = spawn(serverBinary(), args, {
      cwd: this.#folder,
      env: environment(),
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#child = child;
    for await (const line of createInterface(child.stdout)) {
      const [, url] = /export RAILPOST_URL=(\S+)|API +(http\S+)\/v1/.exec(line)?.filter(Boolean) ?? [];
      if (url !== undefined) this.#url = url;
      this.#key = /export RAILPOST_API_KEY=(\S+)/.exec(line)?.[1] ?? this.#key;
      if (this.#url !== "" && this.#key !== "") break;
    }
    // What it still says is not waited for, but must not fill the pipe.
    child.stdout.resume();
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("close", resolve));
    child.kill("SIGTERM");
    await ended;
    this.#url = "";
  }

  /** Puts a backup in the place of the store, and starts again. */
  async restore(backup: string): Promise<void> {
    await this.stop();
    const data = join(this.#folder, "data");
    const args = ["restore", "--data-dir", data, join(data, "backups", backup)];
    await run(serverBinary(), args, { cwd: this.#folder, env: environment() });
    await this.start();
  }

  async backup(name: string): Promise<void> {
    await this.#call("POST", "/v1/backup", { path: name });
  }

  async createEndpoint(url: string, secret?: string): Promise<CreatedEndpoint> {
    // Failures are retried soon, and neither open a breaker nor pause the endpoint.
    const policy = {
      retry: { backoff: { strategy: "fixed", delay: "20ms" }, max_attempts: 1000 },
      breaker: null,
      quarantine_after: null,
      disable_after: null,
    };
    return this.#call("POST", "/v1/tenants/default/endpoints", { url, policy, ...(secret && { secret }) });
  }

  async addSigningKey(endpoint: string): Promise<string> {
    const path = `/v1/tenants/default/endpoints/${endpoint}/secrets`;
    const { public_key: key } = await this.#call<{ public_key: string }>("POST", path, { kind: "signing" });
    return key;
  }

  async deleteEndpoint(endpoint: string): Promise<void> {
    await this.#call("DELETE", `/v1/tenants/default/endpoints/${endpoint}`);
  }

  async publish(events: readonly object[]): Promise<void> {
    await this.#call("POST", "/v1/tenants/default/events/batch", { events });
  }

  async redeliver(event: string, endpoint: string): Promise<void> {
    await this.#call("POST", `/v1/tenants/default/events/${event}/redeliver`, { endpoint });
  }

  async #call<T>(method: string, path: string, body?: object): Promise<T> {
    const headers = { authorization: `Bearer ${this.#key}`, "content-type": "application/json" };
    const response = await fetch(this.#url + path, { method, headers, body: JSON.stringify(body) ?? null });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} was answered ${response.status}: ${text}`);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }
}
