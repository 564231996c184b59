/** A route handler of Next.js. The inbox is in memory: it is about the handler. */

import { MemoryInbox, Receiver, webhook } from "railpost";
import { fetchHandler } from "railpost/fetch";

const effects = [];
const inbox = new MemoryInbox({ policy: { start: "at_one" } });
let handler;

/** Made at the first request: there is no secret while it is built. */
function hook(request) {
  const receiver = new Receiver({ secrets: [process.env.SECRET], keys: [process.env.PUBLIC_KEY] });
  handler ??= fetchHandler(
    webhook({ receiver, inbox, log: () => undefined }, (delivery) => {
      effects.push({ text: delivery.text() });
    }),
  );
  return handler(request);
}

export const POST = hook;
export const dynamic = "force-dynamic";
export const GET = () => Response.json(effects);
