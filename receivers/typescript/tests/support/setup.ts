/**
 * Before all tests: the package is built, for the tests that run other processes with it, and Prisma's clients are
 * generated, which needs no database and none of its engines.
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { installed } from "./services.js";

export default function setup(): void {
  const build = fileURLToPath(new URL("../../scripts/build.js", import.meta.url));
  execFileSync(process.execPath, [build], { stdio: ["ignore", "ignore", "inherit"] });
  for (const provider of ["postgresql", "sqlite"]) generate(provider);
}

/** Where the client for a provider is. */
export function prismaClient(provider: string): string {
  return join(installed(), "prisma", provider, "client", "client.ts");
}

function generate(provider: string): void {
  if (existsSync(prismaClient(provider))) return;
  const folder = join(installed(), "prisma", provider);
  mkdirSync(folder, { recursive: true });
  const schema = join(folder, "schema.prisma");
  writeFileSync(schema, schemaOf(provider));
  const program = join(installed(), "node_modules", "prisma", "build", "index.js");
  // It looks for an engine that migrations need, and would download it. Any program will do: it is not run.
  const environment = {
    ...process.env,
    PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
    PRISMA_HIDE_UPDATE_MESSAGE: "1",
  };
  execFileSync(process.execPath, [program, "generate", "--schema", schema, "--no-hints"], {
    cwd: folder,
    env: environment,
    stdio: ["ignore", "ignore", "inherit"],
  });
}

function schemaOf(provider: string): string {
  return `generator client {
  provider = "prisma-client"
  output = "./client"
  moduleFormat = "esm"
  importFileExtension = "ts"
}
datasource db {
  provider = "${provider}"
}
model Effect {
  id Int @id @default(autoincrement())
  text String
  @@map("effects")
}
`;
}
