import { beforeAll, describe, expect, it } from "vitest";
import { memoryInbox, redisInboxes, SQL_SETUPS, type SqlSetup } from "./support/inboxes.js";
import { cases } from "./support/vectors.js";
import { unique } from "./support/services.js";
import { event, followsTheRules, type MakeInbox, NOW, offer, remembersAGapWithoutACommit } from "./support/suite.js";

/** How many inboxes ran the whole table. */
let ran = 0;

async function followsTheTable(make: MakeInbox): Promise<void> {
  const { cases: count, steps } = await followsTheRules(make);
  expect(count).toBe(cases("inbox", "cases").length);
  ran += 1;
  console.log(`vectors/inbox.json: ${count} cases, ${steps} steps, on ${ran} inboxes`);
}

describe("the inbox in memory", () => {
  it("follows the rules of the shared table", async () => {
    await followsTheTable(memoryInbox);
    await remembersAGapWithoutACommit(memoryInbox({ policy: { start: "at_one" } }));
  });

  it("takes an unknown line from anywhere by default", async () => {
    expect((await offer(memoryInbox({}), event("7", ["A", 7]))).kind).toBe("fresh");
  });
});

describe("the inbox in Redis", () => {
  it("follows the rules of the shared table", async () => {
    const { make } = redisInboxes();
    await followsTheTable(make);
    await remembersAGapWithoutACommit(make({}));
  });
});

describe.each(Object.entries(SQL_SETUPS))("the inbox with %s", (_name, setUp) => {
  let setup: SqlSetup;
  const make = (options = {}) => setup.make({ name: unique("inbox"), ...options }) as never;

  beforeAll(async () => {
    setup = await setUp();
  });

  it("follows the rules of the shared table", async () => {
    await followsTheTable((options) => make(options));
    await remembersAGapWithoutACommit(make());
  });

  it("commits effect and row together, or neither", async () => {
    const inbox = setup.make({ name: unique("inbox") });
    const [first, marker] = [event("1", ["A", 1]), unique("effect")];
    const failing = async () =>
      inbox.apply(first, (tx) => {
        const written = setup.write(tx, `${marker} undone`);
        if (setup.sync) throw new Error("after the write");
        return Promise.resolve(written).then(() => Promise.reject(new Error("after the write")));
      });
    await expect(failing()).rejects.toThrow("after the write");
    const verdicts = [];
    for (let time = 0; time < 2; time += 1) {
      verdicts.push((await inbox.apply(first, (tx) => setup.write(tx, marker))).kind);
    }
    expect(verdicts).toEqual(["fresh", "duplicate"]);
    const written = (await setup.effects()).filter((text) => text.startsWith(marker));
    expect(written).toEqual([marker]);
  });

  it("judges in a transaction of the application's own, and refuses to outside one", async () => {
    const inbox = setup.make({ name: unique("inbox") });
    const [first, marker] = [event("1", ["A", 1]), unique("effect")];
    const inOwn = async () =>
      setup.transaction((tx) => {
        const verdict = inbox.admit(tx, first);
        const write = (kind: string) => (kind === "fresh" ? setup.write(tx, marker) : undefined);
        if (setup.sync) return write((verdict as { kind: string }).kind);
        return Promise.resolve(verdict).then(({ kind }) => write(kind));
      });
    await inOwn();
    await inOwn();
    expect((await setup.effects()).filter((text) => text === marker)).toEqual([marker]);
    const outside = async () => inbox.admit(setup.outside, event("2", ["A", 2]));
    await expect(outside()).rejects.toThrow(/expected an open transaction/);
    expect(await inbox.applied("A")).toBe(1n);
  });

  it("notes accepted gaps, and forgets what is older than the retention", async () => {
    const key = 'a\0é "b';
    const inbox = setup.make({ name: unique("inbox"), policy: { onGap: "accept" }, retentionSeconds: 100 });
    const gapped = event("3", ["L", 3], { key });
    expect(await inbox.apply(gapped, () => undefined, NOW)).toMatchObject({ kind: "gap", applies: true });
    const noted = await inbox.gaps();
    expect(noted).toMatchObject([{ line: "L", applied: 0n, seq: 3n, notedAt: NOW }]);
    expect(noted[0]?.key).toBe(key);
    expect(await inbox.prune(NOW + 100)).toBe(0);
    expect(await inbox.prune(NOW + 101)).toBe(2);
    expect(await inbox.applied("L")).toBe(3n);
    expect(await inbox.prune(NOW + 1201)).toBe(1);
    expect(await inbox.applied("L")).toBe(0n);
  });
});

describe("names", () => {
  it("inboxes of other names in one database know nothing of each other", async () => {
    const setup = await SQL_SETUPS["better-sqlite3"]?.();
    const [one, two] = ["one", "two"].map((name) => setup?.make({ name }));
    const first = event("1", ["A", 1]);
    expect(one?.apply(first, () => undefined)).toMatchObject({ kind: "fresh" });
    expect(two?.apply(first, () => undefined)).toMatchObject({ kind: "fresh" });
    expect(one?.apply(first, () => undefined)).toMatchObject({ kind: "duplicate" });
  });

  it.each([[""], ["a\0b"], [5 as never]])("the name %j is refused", (name) => {
    expect(() => memoryInbox({ name })).toThrow(/^name: /);
  });

  it("a policy that is none is refused by its field and its bound", () => {
    expect(() => memoryInbox({ policy: { onGap: "perhaps" as never } })).toThrow(/policy.onGap: expected one of wait/);
    expect(() => memoryInbox({ policy: { gapTimeoutSeconds: 1.5 } })).toThrow(/policy.gapTimeoutSeconds: .* got 1.5/);
    expect(() => memoryInbox({ retentionSeconds: 0 })).toThrow(/retentionSeconds: .* from 1 to/);
  });
});
