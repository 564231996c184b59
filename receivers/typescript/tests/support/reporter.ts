/** Ends a run with one plain line for machines. */

import type { Reporter, TestModule } from "vitest/node";

export default class PlainReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const count = (state: string) => tests.filter((test) => test.result().state === state).length;
    // A file that cannot be loaded has no tests that could fail.
    const broken = modules.filter((module) => module.state() === "failed" && module.errors().length > 0).length;
    console.log(`${count("passed")} passed, ${count("failed") + broken + errors.length} failed`);
  }
}
