/** For a version of Node that has `node:sqlite`. */

import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["tests/newer/*.test.ts"], reporters: ["default", "./tests/support/reporter.ts"] },
});
