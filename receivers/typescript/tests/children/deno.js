/** A receiver on Deno, with the SQLite of node:sqlite. */

import { DatabaseSync } from "node:sqlite";
import { shop } from "./shop.js";

const onListen = ({ port }) => console.log(`listening on ${port}`);
Deno.serve({ hostname: "127.0.0.1", port: 0, onListen }, shop(new DatabaseSync(":memory:")));
