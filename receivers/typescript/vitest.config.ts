import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/*.test.ts"],
    globalSetup: "tests/support/setup.ts",
    reporters: ["default", "./tests/support/reporter.ts"],
    // The whole run against the server and the killed processes take their time on a busy machine.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
