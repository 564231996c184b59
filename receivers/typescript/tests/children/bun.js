/** A receiver on Bun, with its own SQLite. */

import { Database } from "bun:sqlite";
import { shop } from "./shop.js";

const server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: shop(new Database(":memory:")) });
console.log(`listening on ${server.port}`);
