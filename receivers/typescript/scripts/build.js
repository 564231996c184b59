/** Builds the package: ESM and CommonJS side by side, each with its types, and the schemas as plain SQL. */

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const typescript = dirname(createRequire(import.meta.url).resolve("typescript/package.json"));

/** The module format of a folder is what the nearest package.json says, for Node and for TypeScript. */
function compile(format, type) {
  const out = join(root, "dist", format);
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "package.json"), `${JSON.stringify({ type })}\n`);
  const project = join(root, `tsconfig.${format}.json`);
  execFileSync(process.execPath, [join(typescript, "bin", "tsc"), "-p", project, "--outDir", out], {
    stdio: "inherit",
  });
}

async function writeSql() {
  const { schemaSql } = await import(pathToFileURL(join(root, "dist", "esm", "sql", "schema.js")).href);
  mkdirSync(join(root, "sql"), { recursive: true });
  for (const dialect of ["postgres", "sqlite"]) writeFileSync(join(root, "sql", `${dialect}.sql`), schemaSql(dialect));
}

for (const folder of ["dist", "sql"]) rmSync(join(root, folder), { recursive: true, force: true });
compile("esm", "module");
compile("cjs", "commonjs");
await writeSql();
copyFileSync(join(root, "..", "..", "LICENSE"), join(root, "LICENSE"));
